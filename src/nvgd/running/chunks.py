"""Many steps of a stage between two looks at the clock."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from nvgd._support.compilation import Form, Program, compiled
from nvgd._support.devices import Placement
from nvgd._support.trees import where
from nvgd.flow.aim import TargetView
from nvgd.flow.stage import AbstractStage, StepInfo
from nvgd.targets.scores import Scores
from nvgd.targets.target import Evaluation, Target

# Most steps per chunk; the actual number is a run-time argument.
CAPACITY = 512


class Chunk(NamedTuple):
    """The result of a number of steps."""

    state: Any
    """After the last step that produced finite particles."""
    previous: Any
    """The state one step before `state`, used if the log density is not finite at `state`."""
    infos: StepInfo
    """Leading axis `CAPACITY`; only the first `length` entries are valid."""
    length: Int[Array, ""]
    """Number of steps tried."""
    healthy: Bool[Array, ""]
    """False if the last step tried met a value that is not finite and was not taken."""

    @classmethod
    def of(cls, state: Any, previous: Any, infos: StepInfo) -> "Chunk":
        """An empty chunk, with records of the right shapes."""
        return cls(state, previous, infos, jnp.array(0), jnp.array(True))

    def after(self, moved: Any, info: StepInfo) -> "Chunk":
        """The chunk after one more step; unchanged from the first failure on."""
        is_finite = (info.num_faulty_scores == 0) & (info.num_faulty_moves == 0)
        is_taken = self.healthy & is_finite
        # A step after a failure writes beyond the records, where it is dropped.
        slot = jnp.where(self.healthy, self.length, CAPACITY)
        return Chunk(
            state=where(is_taken, moved, self.state),
            previous=where(is_taken, self.state, self.previous),
            infos=jax.tree.map(
                lambda all_, one: all_.at[slot].set(one, mode="drop"), self.infos, info
            ),
            length=self.length + self.healthy,
            healthy=is_taken,
        )


def advance(
    stage: AbstractStage,
    target: Target,
    state: Any,
    previous: Any,
    taken: PyTree,
    length: int,
    *,
    infos: StepInfo | None,
    thin: int | None,
    key: PRNGKeyArray,
    placement: Placement = Placement(),
) -> tuple[Chunk, Sequence[Float[Array, "n d"]]]:
    """Take `length` steps, or fewer if a value is not finite; return the particles kept, too.

    Either a step is two programs, the target's gradient and the stage's own part, which all targets
    of a shape share; or many steps are one program (`AbstractStage.is_shared`). One compilation
    serves any length.

    Arguments:
        stage: the stage whose steps are taken.
        target: the density to sample.
        state, previous: the current and the previous state.
        taken: the output of `AbstractBatches.take` for `CAPACITY` steps; None if steps use all
            data.
        length: number of steps, at most `CAPACITY`.
        infos: records of an earlier chunk of the stage, to be overwritten; None for the first.
        thin: keep the particles of every `thin`-th step; None keeps none.
        key: random key of the run.
        placement: placement of the arrays on devices.
    """
    if stage.is_shared and placement.mesh is None:
        return _advance_apart(stage, target, state, previous, taken, length, infos, thin, key)
    if infos is None:
        step = jnp.array(0)
        infos = _records(_step, stage, target, state, taken, step, key, placement)
    chunk = Chunk.of(state, previous, infos)
    chunk, kept = _advance(stage, target, chunk, taken, jnp.array(length), thin, key, placement)
    return chunk, list(kept)


def _records(step: Callable[..., tuple[Any, StepInfo]], *args: Any) -> StepInfo:
    """Room for the records of `CAPACITY` steps, from the shapes of one."""
    _, info = eqx.filter_eval_shape(step, *args)
    return jax.tree.map(lambda leaf: jnp.zeros((CAPACITY, *leaf.shape), leaf.dtype), info)


def _advance_apart(
    stage: AbstractStage,
    target: Target,
    state: Any,
    previous: Any,
    taken: PyTree,
    length: int,
    infos: StepInfo | None,
    thin: int | None,
    key: PRNGKeyArray,
) -> tuple[Chunk, list[Float[Array, "n d"]]]:
    """Every step in two programs: the target's gradient, and the stage's own part."""
    is_noisy = target.is_noisy
    if infos is None:
        particles = state.particles
        unknown = Scores(particles[:, 0], particles)
        infos = _records(_update, stage, state, unknown, is_noisy, key)
    evaluate = Evaluation(target)
    chunk, own = Form(Chunk.of(state, previous, infos)), Form(stage)
    arrays, positions = chunk.arrays, stage.positions(state)
    kept, first = [], int(state.step)
    for i in range(length):
        found = evaluate(positions) if taken is None else evaluate(positions, taken, i)
        arrays, positions, particles = _follow(own, chunk, is_noisy, own.arrays, arrays, found, key)
        if thin is not None and (first + i + 1) % thin == 0:
            kept.append(particles)
    return chunk.tree(arrays), kept


def _followed(
    own: Form,
    chunk: Form,
    is_noisy: bool,
    own_arrays: list[Array],
    chunk_arrays: list[Array],
    found: Scores,
    key: PRNGKeyArray,
) -> tuple[list[Array], Float[Array, "n d"], Float[Array, "n d"]]:
    """The stage's own part of a step, which all targets of a shape share.

    Returns the arrays of the chunk, the positions at which to evaluate the target next, and the
    particles.
    """
    stage: AbstractStage = own.tree(own_arrays)
    before: Chunk = chunk.tree(chunk_arrays)
    after = before.after(*_update(stage, before.state, found, is_noisy, key))
    return Form(after).arrays, stage.positions(after.state), after.state.particles


_follow = Program(_followed, 3, quickly=True)


# Compiled by itself, so that the shapes of its records and the program that contains it are traced
# once.
@compiled
def _update(
    stage: AbstractStage, state: Any, found: Scores, is_noisy: bool, key: PRNGKeyArray
) -> tuple[Any, StepInfo]:
    return stage.update(state, found, TargetView.hidden(is_noisy=is_noisy), key=key)


@compiled
def _step(
    stage: AbstractStage,
    target: Target,
    state: Any,
    taken: PyTree,
    i: Int[Array, ""],
    key: PRNGKeyArray,
    placement: Placement,
) -> tuple[Any, StepInfo]:
    shape = state.particles.shape
    share = jax.tree.map(lambda leaf: leaf[i], taken)
    batch = None if taken is None else placement.constrain_batch(target.batch(share))
    state, info = stage.step(target, state, batch, key=key)
    return placement.constrain_particles(state, *shape), info


@compiled
def _advance(
    stage: AbstractStage,
    target: Target,
    start: Chunk,
    taken: PyTree,
    length: Int[Array, ""],
    thin: int | None,
    key: PRNGKeyArray,
    placement: Placement,
) -> tuple[Chunk, Float[Array, "slots n d"]]:
    """Many steps in one program."""
    particles = start.state.particles
    slots = 0 if thin is None else CAPACITY // thin + 2

    def body(carry: tuple[Chunk, Array]) -> tuple[Chunk, Array]:
        chunk, kept = carry
        moved = _step(stage, target, chunk.state, taken, chunk.length, key, placement)
        if thin is not None:
            # Each step overwrites the slot of its stride; the last step of the stride remains.
            slot = chunk.state.step // thin - start.state.step // thin
            kept = kept.at[slot].set(moved[0].particles)
        return chunk.after(*moved), kept

    return jax.lax.while_loop(
        lambda carry: carry[0].healthy & (carry[0].length < length),
        body,
        (start, jnp.zeros((slots, *particles.shape), particles.dtype)),
    )
