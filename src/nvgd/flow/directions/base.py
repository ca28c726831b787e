"""The contract of a direction: where each particle should go next.

The gradient flow of KL(q‖p) moves particles along ∇log p − ∇log q (paper, eq. 1). The score
∇log p is known; a direction is a way to stand in for the unknown −∇log q.
"""

from abc import abstractmethod
from typing import Generic, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from nvgd._support.errors import InputError
from nvgd.flow.aim import AbstractField, TargetView
from nvgd.flow.coordinates.base import AbstractCoordinates
from nvgd.flow.stage import Diagnostics
from nvgd.stein.witnesses import Witness
from nvgd.targets.target import Target

State = TypeVar("State")


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
    """Everywhere; None if the direction knows velocities at its particles only."""
    state: PyTree
    """For the next step."""
    diagnostics: Diagnostics


class Capabilities(NamedTuple):
    """What a direction can do, so that movers and wrappers can refuse what does not fit."""

    noise_share: float = 0.0
    """The share of −∇log q that it leaves to noise, which the mover adds: 1 for Langevin."""
    has_field: bool = False
    """Whether `fit` gives velocities everywhere, smooth enough to push densities along."""
    depends_on: Literal["itself", "resting", "moving", "past"] = "moving"
    """On what a particle's velocity depends beside its own position and score: on nothing, on
    particles that rest in this step, on particles that move with it, or on earlier steps. With
    "resting", half of the particles stand still in every step."""
    is_tempered: bool = False
    """Whether it follows p to a power other than one."""
    looks_again: bool = False
    """Whether it asks the target for scores of its own."""


class AbstractDirection(eqx.Module, Generic[State]):
    """Chooses velocities from particles and their scores."""

    @abstractmethod
    def init(self, particles: Float[Array, "n d"], *, key: PRNGKeyArray) -> State:
        """What the first fit needs to know; checks that the direction fits these particles."""

    @abstractmethod
    def fit(
        self,
        particles: Float[Array, "n d"],
        scores: Float[Array, "n d"],
        state: State,
        *,
        view: TargetView | None,
        key: PRNGKeyArray,
    ) -> Fit:
        """Velocities at the particles and, where the direction has one, the field they are of.

        `view` shows the target to a direction that looks again; others do without.
        """

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What it can do."""

    def extra_gradients(self, num_particles: int) -> int:
        """Gradients that a step evaluates beyond one per particle."""
        del num_particles
        return 0

    def for_run(self, num_steps: int) -> "AbstractDirection":
        """The direction for a run whose length is known."""
        del num_steps
        return self

    def check_coordinates(self, coordinates: AbstractCoordinates) -> None:
        """Refuse coordinates in which the direction is not right."""

    def check_target(self, target: Target) -> None:
        """Refuse a target that lacks what the direction looks at."""


def check_pairs(direction: AbstractDirection, particles: Float[Array, "n d"]) -> None:
    """Refuse a single particle, from which nothing can be learned about q."""
    if len(particles) < 2:
        raise InputError(
            f"num_particles must be at least 2 for {type(direction).__name__}, got "
            f"{len(particles)}."
        )


def norm_squared(vectors: Float[Array, "n d"]) -> Float[Array, " n"]:
    """|v|² of each row."""
    return jax.vmap(lambda v: v @ v)(vectors)
