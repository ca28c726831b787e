"""The interface of a mover, which steps particles along their velocities."""

from abc import abstractmethod
from typing import ClassVar, Generic, TypeVar

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
    """Applies velocities, and adds the direction's share of noise if it can.

    Examples:
        >>> isinstance(nvgd.movers.Euler(0.1), nvgd.movers.AbstractMover)
        True
    """

    takes_noise: ClassVar[bool] = False
    """Whether the mover can add noise scaled to its step."""

    rescues: ClassVar[bool] = False
    """Whether the mover brings back particles whose log density is not finite."""

    @property
    def evaluates_target(self) -> bool:
        """Whether a move evaluates the target."""
        return False

    @abstractmethod
    def init(self, particles: Float[Array, "n d"]) -> State:
        """State for the first move."""

    @abstractmethod
    def __call__(
        self, aim: Aim, state: State, *, step: Int[Array, ""], key: PRNGKeyArray
    ) -> tuple[Float[Array, "n d"], State]:
        """The moved particles, in the step's coordinates, and the state for the next move."""

    def diagnostics(self, state: State) -> Diagnostics:
        """Scalars for the history, about the move that led to this state."""
        del state
        return {}

    def extra_gradients(self, num_moved: int) -> int:
        """Number of gradients of the log density that a move of `num_moved` particles evaluates."""
        del num_moved
        return 0

    def for_run(self, num_steps: int) -> "AbstractMover":
        """The mover for a run of known length."""
        del num_steps
        return self

    def check_parts(self, coordinates: AbstractCoordinates, direction: AbstractDirection) -> None:
        """Reject coordinates or a direction for which the move is not valid."""
        del coordinates
        name, capabilities = type(direction).__name__, direction.capabilities
        if capabilities.noise_share and not self.takes_noise:
            raise InputError(
                f"{name} adds noise scaled to a plain step and cannot be moved by "
                f"{type(self).__name__}: use Euler(step_size)."
            )
        if capabilities.depends_on == "resting":
            raise InputError(
                f"{name} moves half of the particles per step, which "
                f"{type(self).__name__} does not: use Metropolis(Euler(step_size))."
            )

    def check_target(self, target: Target) -> None:
        """Reject a target that lacks something the mover needs."""


def check_memoryless(who: str, direction: AbstractDirection) -> None:
    """Refuse a direction that remembers the past of each particle, which a copy does not have."""
    if direction.capabilities.depends_on == "past":
        raise InputError(
            f"{who} copies particles, but not the past that {type(direction).__name__} remembers "
            "of them: use another mover, such as Euler(step_size)."
        )


def check_fixed(coordinates: AbstractCoordinates, what: str) -> None:
    """Reject coordinates that change from step to step; `what` opens the error message."""
    if coordinates.frame_kind != "fixed":
        raise InputError(
            f"{what}, which {type(coordinates).__name__} coordinates would express differently in "
            "every step: use Identity() or Preconditioned(matrix)."
        )
