"""The contract of a direction: where each particle should go next.

The gradient flow of KL(q‖p) moves particles along ∇log p − ∇log q (paper, eq. 1). The score
∇log p is known; a direction is a way to stand in for the unknown −∇log q.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from nvgd.coordinates.base import AbstractCoordinates
from nvgd.errors import InputError
from nvgd.witnesses import Witness

if TYPE_CHECKING:
    from nvgd.target import Target
    from nvgd.views import View

State = TypeVar("State")

# Scalars that a person may want to see: name → array of shape ().
Diagnostics = dict[str, Array]


class AbstractField(eqx.Module):
    """Velocities at any positions, of which the scores are known."""

    @abstractmethod
    def __call__(
        self, positions: Float[Array, "m d"], scores: Float[Array, "m d"]
    ) -> Float[Array, "m d"]:
        """One velocity a position; rows do not see each other."""

    def rows(self, num_particles: int) -> Int[Array, " m"]:
        """Which particles it may move."""
        return jnp.arange(num_particles)


class WitnessField(AbstractField):
    """A witness at every position, whatever the score is there."""

    witness: Witness

    def __call__(self, positions, scores):
        """f(x)."""
        del scores
        return jax.vmap(self.witness)(positions)


class Fit(NamedTuple):
    """What a direction found in one step."""

    velocities: Float[Array, "n d"]
    """At the particles."""
    field: AbstractField | None
    """Everywhere; None if the direction only knows velocities at its particles."""
    state: PyTree
    """For the next step."""
    diagnostics: Diagnostics


class AbstractDirection(eqx.Module, Generic[State]):
    """Chooses velocities from particles and their scores.

    Most directions need nothing else and are a `__call__`. One that can say where a particle
    would go that is not there, or that looks at the target again, implements `fit` as well.
    """

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

    def fit(
        self,
        particles: Float[Array, "n d"],
        scores: Float[Array, "n d"],
        state: State,
        *,
        view: "View | None",
        key: PRNGKeyArray,
    ) -> Fit:
        """Velocities at the particles and, where the direction has one, the field they are of."""
        del view
        velocities, state, diagnostics = self(particles, scores, state, key=key)
        return Fit(velocities, None, state, diagnostics)

    @property
    def has_field(self) -> bool:
        """Whether `fit` gives velocities everywhere."""
        return False

    @property
    def can_carry(self) -> bool:
        """Whether `fit` gives a field, rough as it may be, for points that are carried along."""
        return self.has_field

    @property
    def noise_share(self) -> float:
        """Which share of −∇log q is left to noise that the mover adds: 1 for Langevin."""
        return 0.0

    @property
    def moves_halves(self) -> bool:
        """Whether half of the particles stand still in every step."""
        return False

    @property
    def is_reversible(self) -> bool:
        """Whether a particle's velocity depends on no particle that moves at the same time."""
        return False

    def extra_gradients(self, num_particles: int) -> int:
        """How many gradients a step evaluates beyond one a particle."""
        del num_particles
        return 0

    def for_run(self, num_steps: int) -> "AbstractDirection":
        """The direction for a run whose length is known."""
        del num_steps
        return self

    def check_coordinates(self, coordinates: AbstractCoordinates) -> None:
        """Refuse coordinates in which the direction is not right."""

    def check_target(self, target: "Target") -> None:
        """Refuse a target that lacks what the direction looks at."""

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
