"""The contract of a stage, the unit of a run.

A run is a sequence of stages, each of a number of steps. A stage owns its state: it makes it from
particles, carries it from step to step, and at the end turns it into particles again, from which
the next stage begins.
"""

from abc import abstractmethod
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from nvgd.targets.target import Target

# Scalars that a person may want to see: name → array of shape ().
Diagnostics = dict[str, Array]


@runtime_checkable
class StageState(Protocol):
    """What a run reads of any stage's state; the rest is the stage's own. Arrays only."""

    @property
    def particles(self) -> Float[Array, "n d"]:
        """Where the particles are."""
        ...

    @property
    def step(self) -> Int[Array, ""]:
        """Steps of the run behind this state."""
        ...


class StepInfo(NamedTuple):
    """What a person may want to see of a step."""

    log_density: Float[Array, ""]
    """Mean over the particles, before the move."""
    step_norm: Float[Array, ""]
    """Root mean square distance that a particle moved."""
    num_gradients: Int[Array, ""]
    """Gradients of the log density that the step evaluated: one per particle, if no part asks
    for more."""
    num_faulty_scores: Int[Array, ""]
    """Particles whose log density or score was not finite before the move, and not rescued."""
    num_faulty_moves: Int[Array, ""]
    """Particles that the move made non-finite."""
    diagnostics: Diagnostics
    """The stage's own: `stein_discrepancy`, `inner_steps`, `acceptance`, where they exist."""


class StageRecord(NamedTuple):
    """A stage of a finished run."""

    kind: str
    """ "flow" or "corrections"."""
    until_step: int


class AbstractStage(eqx.Module):
    """A way to move particles for some steps.

        state = stage.init(target, particles, key=key)
        state, info = stage.step(target, state, batch, key=key)     # compiled, many times
        particles = stage.finish(target, state)                     # once, on the host

    The same key serves every step: the step number is folded in.
    """

    @abstractmethod
    def init(self, target: Target, particles: Float[Array, "n d"], *, key: PRNGKeyArray) -> Any:
        """The state before the first step."""

    def init_gradients(self, num_particles: int) -> int:
        """Gradients of the log density that `init` evaluates."""
        del num_particles
        return 0

    @abstractmethod
    def step(
        self, target: Target, state: Any, batch: PyTree = None, *, key: PRNGKeyArray
    ) -> tuple[Any, StepInfo]:
        """One step; `batch` holds the data rows to estimate scores from, all if omitted."""

    @abstractmethod
    def finish(self, target: Target, state: Any) -> Float[Array, "n d"]:
        """The particles that the stage hands over."""


def root_mean_square_distance(x: Float[Array, "n d"], y: Float[Array, "n d"]) -> Float[Array, ""]:
    """√(mean |xᵢ − yᵢ|²)."""
    return jnp.sqrt(jnp.mean(jnp.sum((x - y) ** 2, axis=-1)))


def num_non_finite(particles: Float[Array, "n d"]) -> Int[Array, ""]:
    """Particles with a coordinate that is not finite."""
    return jnp.sum(~jnp.all(jnp.isfinite(particles), axis=-1))


def step_keys(key: PRNGKeyArray, step: Int[Array, ""] | int, number: int) -> Key[Array, " k"]:
    """Independent keys for the parts of one step."""
    return jax.random.split(jax.random.fold_in(key, step), number)
