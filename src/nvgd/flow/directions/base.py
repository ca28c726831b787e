"""The interface of a direction, which computes the velocities of the particles.

The gradient flow of KL(q‖p) moves particles along ∇log p − ∇log q (paper, eq. 1). The score
∇log p is known; a direction approximates the unknown −∇log q.
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
    """A witness as a velocity field, which does not depend on the scores."""

    witness: Witness

    def __call__(self, positions, scores):
        """f(x)."""
        del scores
        return jax.vmap(self.witness)(positions)


class Fit(NamedTuple):
    """Result of a direction's fit in one step.

    Examples:
        >>> nvgd.directions.Fit._fields
        ('velocities', 'field', 'state', 'diagnostics', 'without_repulsion')
    """

    velocities: Float[Array, "n d"]
    """Velocities at the particles."""
    field: AbstractField | None
    """Velocities at any position; None if the direction has them at its particles only."""
    state: PyTree
    """State for the next fit."""
    diagnostics: Diagnostics
    without_repulsion: Float[Array, "n d"] | None = None
    """Velocities without the approximation of −∇log q, for movers that replace it by noise; None
    if they must not."""


class Capabilities(NamedTuple):
    """Properties of a direction, by which movers and wrappers reject what they do not support.

    Examples:
        >>> nvgd.directions.Langevin().capabilities.noise_share
        1.0
    """

    noise_share: float = 0.0
    """Share of −∇log q that is left to noise, which the mover adds: 1 for Langevin."""
    has_field: bool = False
    """Whether `fit` returns a field, smooth enough to transport densities."""
    depends_on: Literal["itself", "resting", "moving", "past"] = "moving"
    """What a particle's velocity depends on besides its own position and score: nothing
    ("itself"), particles that rest in this step ("resting"), particles that move in the same step
    ("moving"), or earlier steps ("past"). With "resting", half of the particles rest in every
    step."""
    is_tempered: bool = False
    """Whether the direction targets p to a power other than one."""
    evaluates_target: bool = False
    """Whether `fit` evaluates further scores of the target."""
    trains: bool = False
    """Whether `fit` trains a network, which takes long to compile."""


class AbstractDirection(eqx.Module, Generic[State]):
    """Computes velocities from particles and their scores.

    Examples:
        >>> particles = jax.random.normal(jax.random.key(0), (50, 2))
        >>> direction = nvgd.directions.Kernel()
        >>> state = direction.init(particles, key=jax.random.key(1))
        >>> fit = direction.fit(particles, -particles, state, view=None, key=jax.random.key(2))
        >>> fit.velocities.shape
        (50, 2)
    """

    @abstractmethod
    def init(self, particles: Float[Array, "n d"], *, key: PRNGKeyArray) -> State:
        """State for the first fit; checks that the direction supports these particles."""

    def init_noisy(self, particles: Float[Array, "n d"], *, key: PRNGKeyArray) -> State:
        """State for scores that are estimated from minibatches; `init` by default."""
        return self.init(particles, key=key)

    def trains(self, state: State) -> bool:
        """Whether a fit from this state trains a network; as declared by default."""
        del state
        return self.capabilities.trains

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
        """Compute velocities at the particles and, if the direction has one, the velocity field.

        Arguments:
            particles, scores: in the coordinates of the step.
            view: access to the target, for directions that evaluate further scores.
        """

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Properties that movers and wrappers check."""

    def extra_gradients(self, num_particles: int) -> int:
        """Number of gradients that a step evaluates beyond one per particle."""
        del num_particles
        return 0

    def for_run(self, num_steps: int) -> "AbstractDirection":
        """The direction for a run of known length."""
        del num_steps
        return self

    def check_coordinates(self, coordinates: AbstractCoordinates) -> None:
        """Reject coordinates in which the direction is not valid."""

    def check_target(self, target: Target) -> None:
        """Reject a target that lacks something the direction needs."""


def check_pairs(direction: AbstractDirection, particles: Float[Array, "n d"]) -> None:
    """Reject a single particle, which carries no information about q."""
    if len(particles) < 2:
        raise InputError(
            f"num_particles must be at least 2 for {type(direction).__name__}, got "
            f"{len(particles)}."
        )


def norm_squared(vectors: Float[Array, "n d"]) -> Float[Array, " n"]:
    """|v|² of each row."""
    return jax.vmap(lambda v: v @ v)(vectors)
