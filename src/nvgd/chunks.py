"""Many steps in one compiled call."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from nvgd.compilation import compiled
from nvgd.corrections import Corrections
from nvgd.flow import FlowInfo, FlowState, ParticleFlow
from nvgd.sharding import Layout
from nvgd.target import Target
from nvgd.trees import where

# Steps that one compiled call can take; how many it does take is decided at run time.
CAPACITY = 512


class Chunk(NamedTuple):
    """What one compiled call returns."""

    state: FlowState
    """After the last step that produced finite particles."""
    previous: FlowState
    """One step before: the state to go back to if the log density turns out faulty at `state`."""
    infos: FlowInfo
    """Leading axis `CAPACITY`, of which the first `length` entries count."""
    kept: Float[Array, "slots n d"] | None
    """The last particles of every stride of `thin` steps."""
    length: Int[Array, ""]
    healthy: Bool[Array, ""]
    """False if the last of the `length` steps met a non-finite value and was not taken."""


@compiled
def advance(
    flow: ParticleFlow | Corrections,
    target: Target,
    state: FlowState,
    previous: FlowState,
    taken: PyTree,
    length: Int[Array, ""],
    *,
    thin: int | None,
    key: PRNGKeyArray,
    layout: Layout = Layout(),
) -> Chunk:
    """Take `length` steps, or fewer if a non-finite value turns up; one program for any length.

    Arguments:
        taken: for every step, what its batch is made from; None if every step sees all data.
        layout: where the arrays live.
    """

    def step(state: FlowState, i: Array) -> tuple[FlowState, FlowInfo]:
        share = jax.tree.map(lambda leaf: leaf[i], taken)
        batch = None if taken is None else layout.constrain_batch(target.batch(share))
        state, info = flow.step(target, state, batch, key=key)
        return layout.constrain_state(state), info

    def goes_on(chunk: Chunk) -> Array:
        return chunk.healthy & (chunk.length < length)

    def body(chunk: Chunk) -> Chunk:
        moved, info = step(chunk.state, chunk.length)
        healthy = (info.num_faulty_scores == 0) & (info.num_faulty_moves == 0)
        kept = chunk.kept
        if kept is not None and thin is not None:
            # Overwritten until its stride is over; what is left is the stride's last state.
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
        kept = jnp.zeros((slots, *state.particles.shape), state.particles.dtype)
    start = Chunk(state, previous, infos, kept, jnp.array(0), jnp.array(True))
    return jax.lax.while_loop(goes_on, body, start)
