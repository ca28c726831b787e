"""The interface of a stage, the unit of a run.

A run is a sequence of stages, each with a number of steps. A stage owns its state: `init` creates
it from particles, `step` updates it, and `finish` converts it to particles, from which the next
stage starts.
"""

from abc import abstractmethod
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from nvgd.flow.aim import TargetView
from nvgd.targets.scores import Scores
from nvgd.targets.target import Target

# Scalars for the history of a run: name → array of shape ().
Diagnostics = dict[str, Array]


@runtime_checkable
class StageState(Protocol):
    """The fields that every stage's state provides to a run; all fields hold arrays only."""

    @property
    def particles(self) -> Float[Array, "n d"]:
        """Current particles."""
        ...

    @property
    def step(self) -> Int[Array, ""]:
        """Number of steps that the run has taken."""
        ...


class StepInfo(NamedTuple):
    """Record of one step."""

    log_density: Float[Array, ""]
    """Mean log density over the particles, before the move."""
    step_norm: Float[Array, ""]
    """Root mean square displacement of the particles."""
    num_gradients: Int[Array, ""]
    """Number of gradients of the log density: one per particle, plus those of parts that need
    more."""
    num_faulty_scores: Int[Array, ""]
    """Number of particles that had no finite log density or score before the move and cannot be
    rescued."""
    num_faulty_moves: Int[Array, ""]
    """Number of particles that are not finite after the move."""
    diagnostics: Diagnostics
    """Scalars specific to the stage, such as `stein_discrepancy`, `inner_steps` or
    `acceptance`."""


class StageRecord(NamedTuple):
    """A stage of a finished run."""

    kind: str
    """Either "flow" or "corrections"."""
    until_step: int
    """Step of the run at which the stage ended."""


class AbstractStage(eqx.Module):
    """An algorithm that moves particles for a number of steps.

        state = stage.init(target, particles, key=key)
        state, info = stage.step(target, state, batch, key=key)     # many times
        particles = stage.finish(target, state)                     # once, on the host

    A step evaluates the target at `positions(state)`, one gradient per particle, and passes the
    result to `update`, and before that to `prepare` where that is due. Pass the same key to every
    step: the step number is folded in.
    """

    @property
    def needs_target(self) -> bool:
        """Whether `update` evaluates the target again, at other positions or on other rows."""
        return False

    def is_shared(self, state: Any) -> bool:
        """Whether to compile `update` without the target, once for all targets of a shape.

        This costs a tenth of a millisecond per step, and pays where `update` takes long to compile.

        Arguments:
            state: a state of the stage, of which only the structure matters.
        """
        del state
        return not self.needs_target

    @abstractmethod
    def init(self, target: Target, particles: Float[Array, "n d"], *, key: PRNGKeyArray) -> Any:
        """The state before the first step."""

    def init_gradients(self, num_particles: int) -> int:
        """Number of gradients of the log density that `init` evaluates."""
        del num_particles
        return 0

    def kept_steps(self, num_particles: int, dim: int) -> range:
        """The steps of the run after which the particles are draws of the target; none by default.

        The state then has `log_densities` and `scores` of the particles, too.
        """
        del num_particles, dim
        return range(0)

    def is_due(self, state: Any, step: Any) -> Any:
        """Whether `prepare` is due before the update of this step; never by default.

        Arguments:
            state: a state of the stage, of which only the structure matters.
            step: number of steps taken, or an array of such numbers.
        """
        del state, step
        return False

    def prepare(self, state: Any, found: Scores, *, key: PRNGKeyArray) -> Any:
        """The state after work that is too costly for every step, in a program of its own."""
        del found, key
        return state

    def positions(self, state: Any) -> Float[Array, "n d"]:
        """The positions at which the next step evaluates the target; the particles by default."""
        return state.particles

    @abstractmethod
    def update(
        self, state: Any, found: Scores, view: TargetView, *, key: PRNGKeyArray
    ) -> tuple[Any, StepInfo]:
        """The rest of a step, after the target has been evaluated.

        Arguments:
            found: log densities and scores at `positions(state)`.
            view: the target on the step's batch; without the target unless `needs_target`.
        """

    def step(
        self, target: Target, state: Any, batch: PyTree = None, *, key: PRNGKeyArray
    ) -> tuple[Any, StepInfo]:
        """One step.

        Arguments:
            batch: data rows to estimate the scores from; all data if omitted.
        """
        found = target.log_densities_and_scores(self.positions(state), batch)
        is_due = self.is_due(state, state.step)
        if is_due is not False:
            before = state
            state = jax.lax.cond(
                is_due, lambda: self.prepare(before, found, key=key), lambda: before
            )
        return self.update(state, found, TargetView.of(target, batch), key=key)

    @abstractmethod
    def finish(self, target: Target, state: Any) -> Float[Array, "n d"]:
        """The particles at the end of the stage."""


def root_mean_square_distance(x: Float[Array, "n d"], y: Float[Array, "n d"]) -> Float[Array, ""]:
    """√(mean |xᵢ − yᵢ|²)."""
    return jnp.sqrt(jnp.mean(jnp.sum((x - y) ** 2, axis=-1)))


def num_non_finite(particles: Float[Array, "n d"]) -> Int[Array, ""]:
    """Number of particles with a non-finite coordinate."""
    return jnp.sum(~jnp.all(jnp.isfinite(particles), axis=-1))


def step_keys(key: PRNGKeyArray, step: Int[Array, ""] | int, number: int) -> Key[Array, " k"]:
    """Independent keys for the parts of one step."""
    return jax.random.split(jax.random.fold_in(key, step), number)
