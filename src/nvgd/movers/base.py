"""The contract of a mover: how particles step along their velocities."""

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import equinox as eqx
from jaxtyping import Array, Float, Int, PRNGKeyArray

from nvgd.coordinates import AbstractCoordinates
from nvgd.directions.base import AbstractDirection, AbstractField, Diagnostics
from nvgd.errors import InputError

if TYPE_CHECKING:
    from nvgd.target import Target
    from nvgd.views import Aim, View

State = TypeVar("State")


class AbstractMover(eqx.Module, Generic[State]):
    """Applies velocities; adds the noise that the direction asks for, if it can."""

    takes_noise: ClassVar[bool]
    """Whether noise of the right size for its step can be added."""

    takes_halves: ClassVar[bool] = False
    """Whether it can move some of the particles and leave the others."""

    is_pointwise: ClassVar[bool] = False
    """Whether a particle's move is a function of its own position and velocity alone."""

    carries: ClassVar[bool] = False
    """Whether points that have no part in the flow can be moved along with it: see `carry`."""

    rescues: ClassVar[bool] = False
    """Whether a particle where the log density is not finite is brought back at once."""

    @abstractmethod
    def init(self, particles: Float[Array, "n d"]) -> State:
        """What the first move needs to know."""

    @abstractmethod
    def __call__(
        self,
        particles: Float[Array, "n d"],
        velocities: Float[Array, "n d"],
        noise_share: float,
        state: State,
        *,
        log_densities: Float[Array, " n"],
        step: Int[Array, ""],
        key: PRNGKeyArray,
        field: AbstractField | None = None,
        view: "View | None" = None,
    ) -> tuple[Float[Array, "n d"], State]:
        """The moved particles, and the state for the next move.

        `field` and `view` say where the direction points, and what the target is, elsewhere.
        """

    def carry(
        self,
        points: Float[Array, "m d"],
        velocities: Float[Array, "m d"],
        noise_share: float,
        state: State,
        *,
        leaders: "Aim",
        log_densities: Float[Array, " m"],
        step: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "m d"], State]:
        """Move points along the field of the particles, `leaders`, without a part in it.

        A mover that moves every row apart from the others has nothing to add to its own step.
        """
        del leaders
        return self(
            points, velocities, noise_share, state, log_densities=log_densities, step=step, key=key
        )

    def diagnostics(self, state: State) -> Diagnostics:
        """Scalars worth watching, of the move that left this state."""
        del state
        return {}

    def extra_gradients(self, num_moved: int) -> int:
        """How many gradients of the log density a move of so many particles costs."""
        del num_moved
        return 0

    def for_run(self, num_steps: int) -> "AbstractMover":
        """The mover for a run whose length is known."""
        del num_steps
        return self

    def check_parts(self, coordinates: AbstractCoordinates, direction: AbstractDirection) -> None:
        """Refuse coordinates or a direction with which the move is not right."""
        del coordinates
        if direction.noise_share and not self.takes_noise:
            raise InputError(
                f"{type(direction).__name__} adds noise scaled to a plain step and cannot be "
                f"moved by {type(self).__name__}: use Euler(step_size)."
            )
        if direction.moves_halves and not self.takes_halves:
            raise InputError(
                f"{type(direction).__name__} proposes for half of the particles at a time, which "
                f"{type(self).__name__} does not: use Metropolis(Euler(step_size))."
            )

    def check_target(self, target: "Target") -> None:
        """Refuse a target that lacks what the mover looks at."""
