"""The contract of a mover: how particles step along their velocities."""

from abc import abstractmethod
from typing import Generic, TypeVar

import equinox as eqx
from jaxtyping import Array, Float, Int, PRNGKeyArray

from nvgd._support.errors import InputError
from nvgd.flow.aim import Aim
from nvgd.flow.coordinates.base import AbstractCoordinates
from nvgd.flow.directions.base import AbstractDirection
from nvgd.flow.stage import Diagnostics
from nvgd.targets.target import Target

State = TypeVar("State")


class AbstractMover(eqx.Module, Generic[State]):
    """Applies velocities; adds the noise that the direction asks for, if it can."""

    @property
    @abstractmethod
    def takes_noise(self) -> bool:
        """Whether it can add noise of the right size for its step."""

    @property
    def rescues(self) -> bool:
        """Whether it brings back a particle at which the log density is not finite."""
        return False

    @abstractmethod
    def init(self, particles: Float[Array, "n d"]) -> State:
        """What the first move needs to know."""

    @abstractmethod
    def __call__(
        self, aim: Aim, state: State, *, step: Int[Array, ""], key: PRNGKeyArray
    ) -> tuple[Float[Array, "n d"], State]:
        """The moved particles, in the step's coordinates, and the state for the next move."""

    def diagnostics(self, state: State) -> Diagnostics:
        """Scalars worth watching, of the move that left this state."""
        del state
        return {}

    def extra_gradients(self, num_moved: int) -> int:
        """Gradients of the log density that a move of so many particles costs."""
        del num_moved
        return 0

    def for_run(self, num_steps: int) -> "AbstractMover":
        """The mover for a run whose length is known."""
        del num_steps
        return self

    def check_parts(self, coordinates: AbstractCoordinates, direction: AbstractDirection) -> None:
        """Refuse coordinates or a direction with which the move is not right."""
        del coordinates
        name, capabilities = type(direction).__name__, direction.capabilities
        if capabilities.noise_share and not self.takes_noise:
            raise InputError(
                f"{name} adds noise scaled to a plain step and cannot be moved by "
                f"{type(self).__name__}: use Euler(step_size)."
            )
        if capabilities.depends_on == "resting":
            raise InputError(
                f"{name} proposes for half of the particles at a time, which "
                f"{type(self).__name__} does not: use Metropolis(Euler(step_size))."
            )

    def check_target(self, target: Target) -> None:
        """Refuse a target that lacks what the mover looks at."""


def check_fixed(coordinates: AbstractCoordinates, what: str) -> None:
    """Refuse coordinates that would express `what` differently in every step."""
    if coordinates.frame_kind != "fixed":
        raise InputError(
            f"{what}, which {type(coordinates).__name__} coordinates would express differently in "
            "every step: use Identity() or Preconditioned(matrix)."
        )
