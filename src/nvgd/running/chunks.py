"""Many steps of a stage in one compiled call."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from nvgd._support.compilation import compiled
from nvgd._support.devices import Placement
from nvgd._support.trees import where
from nvgd.flow.stage import AbstractStage, StepInfo
from nvgd.targets.target import Target

# Most steps per compiled call; the actual number is a run-time argument.
CAPACITY = 512


class Chunk(NamedTuple):
    """The result of one compiled call."""

    state: Any
    """After the last step that produced finite particles."""
    previous: Any
    """The state one step before `state`, used if the log density is not finite at `state`."""
    infos: StepInfo
    """Leading axis `CAPACITY`; only the first `length` entries are valid."""
    kept: Float[Array, "slots n d"] | None
    """The particles at every `thin`-th step; only the slots of completed strides are valid."""
    length: Int[Array, ""]
    """Number of steps tried."""
    healthy: Bool[Array, ""]
    """False if the last step tried met a value that is not finite and was not taken."""


@compiled
def advance(
    stage: AbstractStage,
    target: Target,
    state: Any,
    previous: Any,
    taken: PyTree,
    length: Int[Array, ""],
    *,
    thin: int | None,
    key: PRNGKeyArray,
    placement: Placement = Placement(),
) -> Chunk:
    """Take `length` steps, or fewer if a value is not finite; one program serves any length.

    Arguments:
        stage: the stage whose steps are taken.
        target: the density to sample.
        state, previous: the current and the previous state.
        taken: the output of `AbstractBatches.take` for these steps; None if steps use all data.
        length: number of steps, at most `CAPACITY`.
        thin: keep the particles of every `thin`-th step; None keeps none.
        key: random key of the run.
        placement: placement of the arrays on devices.
    """
    shape = state.particles.shape

    def step(state: Any, i: Array) -> tuple[Any, StepInfo]:
        share = jax.tree.map(lambda leaf: leaf[i], taken)
        batch = None if taken is None else placement.constrain_batch(target.batch(share))
        state, info = stage.step(target, state, batch, key=key)
        return placement.constrain_particles(state, *shape), info

    def goes_on(chunk: Chunk) -> Array:
        return chunk.healthy & (chunk.length < length)

    def body(chunk: Chunk) -> Chunk:
        moved, info = step(chunk.state, chunk.length)
        healthy = (info.num_faulty_scores == 0) & (info.num_faulty_moves == 0)
        kept = chunk.kept
        if kept is not None and thin is not None:
            # Each step overwrites the slot of its stride; the last step of the stride remains.
            slot = chunk.state.step // thin - state.step // thin
            kept = kept.at[slot].set(moved.particles)
        return Chunk(
            state=where(healthy, moved, chunk.state),
            previous=where(healthy, chunk.state, chunk.previous),
            infos=jax.tree.map(lambda all_, one: all_.at[chunk.length].set(one), chunk.infos, info),
            kept=kept,
            length=chunk.length + 1,
            healthy=healthy,
        )

    _, info = eqx.filter_eval_shape(step, state, jnp.array(0))
    infos = jax.tree.map(lambda leaf: jnp.zeros((CAPACITY, *leaf.shape), leaf.dtype), info)
    kept = None
    if thin is not None:
        slots = CAPACITY // thin + 2
        kept = jnp.zeros((slots, *shape), state.particles.dtype)
    start = Chunk(state, previous, infos, kept, jnp.array(0), jnp.array(True))
    return jax.lax.while_loop(goes_on, body, start)
