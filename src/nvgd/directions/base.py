"""The contract of a direction: where each particle should go next.

The gradient flow of KL(q‖p) moves particles along ∇log p − ∇log q (paper, eq. 1). The score
∇log p is known; a direction is a way to stand in for the unknown −∇log q.
"""

from abc import abstractmethod
from typing import ClassVar, Generic, TypeVar

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd.errors import InputError

State = TypeVar("State")

# Scalars that a person may want to see: name → array of shape ().
Diagnostics = dict[str, Array]


class AbstractDirection(eqx.Module, Generic[State]):
    """Chooses velocities from particles and their scores; never calls the log density itself."""

    noise_share: ClassVar[float]
    """Which share of −∇log q is left to noise that the mover adds: 0, or 1 for Langevin."""

    min_particles: ClassVar[int]
    """The fewest particles the direction can work with."""

    @abstractmethod
    def init(self, particles: Float[Array, "n d"], *, key: PRNGKeyArray) -> State:
        """What the first call needs to know; checks that the direction fits these particles."""

    @abstractmethod
    def __call__(
        self,
        particles: Float[Array, "n d"],
        scores: Float[Array, "n d"],
        state: State,
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "n d"], State, Diagnostics]:
        """Velocities at the particles, the state for the next call, and scalars worth watching."""

    def check_particles(self, particles: Float[Array, "n d"]) -> None:
        """Refuse fewer particles than the direction can work with."""
        if len(particles) < self.min_particles:
            raise InputError(
                f"num_particles must be at least {self.min_particles} for "
                f"{type(self).__name__}, got {len(particles)}."
            )


def norm_squared(vectors: Float[Array, "n d"]) -> Float[Array, " n"]:
    """|v|² of each row."""
    return jax.vmap(lambda v: v @ v)(vectors)
