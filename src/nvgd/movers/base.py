"""The contract of a mover: how particles step along their velocities."""

from abc import abstractmethod
from typing import ClassVar, Generic, TypeVar

import equinox as eqx
from jaxtyping import Array, Float, Int, PRNGKeyArray

State = TypeVar("State")


class AbstractMover(eqx.Module, Generic[State]):
    """Applies velocities; adds the noise that the direction asks for, if it can."""

    takes_noise: ClassVar[bool]
    """Whether noise of the right size for its step can be added."""

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
    ) -> tuple[Float[Array, "n d"], State]:
        """The moved particles, and the state for the next move."""

    def for_run(self, num_steps: int) -> "AbstractMover":
        """The mover for a run whose length is known."""
        del num_steps
        return self
