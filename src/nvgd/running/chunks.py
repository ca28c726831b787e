"""Chunks: many steps of a stage between two checks of the clock."""

import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from nvgd._support.compilation import Form, Program, compiled
from nvgd._support.devices import Placement
from nvgd.flow.aim import TargetView
from nvgd.flow.stage import AbstractStage, StepInfo
from nvgd.targets.evaluation import Evaluation
from nvgd.targets.scores import Scores
from nvgd.targets.target import Target

# Most steps per chunk.
CAPACITY = 512


class Chunk(NamedTuple):
    """The result of a number of steps."""

    state: Any
    """After the last step that produced finite particles."""
    previous: Any
    """The state one step before `state`, used if the log density is not finite at `state`."""
    infos: StepInfo
    """Records of all steps tried, as NumPy arrays with one entry per step."""
    healthy: bool
    """False if the last step tried met a value that is not finite and was not taken."""
    kept: list[Float[Array, "n d"]]
    """The particles at every `thin`-th step, perhaps with some of steps that were not taken."""
    draws: list[Any]
    """The states at the stage's `kept_steps`, if the chunk passes over them (`passes_draws`)."""


class Steps(NamedTuple):
    """What the steps of a run have in common.

    Arguments:
        stage: the stage whose steps are taken.
        target: the density to sample.
        key: random key of the run.
        thin: keep the particles of every `thin`-th step; None keeps none.
        placement: placement of the arrays on devices.
    """

    stage: AbstractStage
    target: Target
    key: PRNGKeyArray
    thin: int | None = None
    placement: Placement = Placement()


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["form", "dtypes"]
)
@dataclasses.dataclass(frozen=True)
class Packed:
    """The scalars of a step's record as one array, since every array costs the host its time."""

    values: Float[Array, " k"]
    form: Any
    dtypes: tuple[np.dtype, ...]

    @classmethod
    def of(cls, info: StepInfo) -> "Packed":
        """Pack a record. Its integers are counts of particles, which a float holds exactly."""
        leaves, form = jax.tree.flatten(info)
        values = jnp.stack([jnp.asarray(leaf, float) for leaf in leaves])
        return cls(values, form, tuple(leaf.dtype for leaf in leaves))

    @staticmethod
    def stacked(infos: list["Packed"]) -> StepInfo:
        """The records of several steps, as arrays on the host with one entry per step."""
        columns = np.stack(jax.device_get([info.values for info in infos])).T
        leaves = map(np.ndarray.astype, columns, infos[0].dtypes)
        return jax.tree.unflatten(infos[0].form, leaves)


def passes_draws(steps: Steps, state: Any) -> bool:
    """Whether `advance` keeps every state, so that a chunk need not end at the next draw."""
    return steps.stage.is_shared(state) and steps.placement.mesh is None


def advance(steps: Steps, state: Any, previous: Any, taken: PyTree, length: int) -> Chunk:
    """Take `length` steps, or fewer if a value is not finite.

    Either a step is two programs, the target's gradient and the stage's own part, which all targets
    of a shape share; or many steps are one program (`AbstractStage.is_shared`). One compilation
    serves any length.

    Arguments:
        state, previous: the current and the previous state.
        taken: the output of `AbstractBatches.take` for as many steps as one program can take; None
            if steps use all data.
        length: number of steps, at most `CAPACITY`.
    """
    if passes_draws(steps, state):
        return _advance_apart(steps, state, previous, taken, length)
    chunk, kept = advance_together(steps, state, previous, taken, jnp.array(length))
    if not chunk.healthy:
        # The steps before the faulty one again, without it: cheaper than keeping a third state, or
        # choosing between two, in every step.
        good = jnp.array(int(chunk.length) - 1)
        again, kept = advance_together(steps, state, previous, taken, good)
        chunk = chunk._replace(state=again.state, previous=again.previous)
    # Cut on the host: on the device, every length would compile a new program.
    infos = jax.tree.map(lambda leaf: np.asarray(leaf)[: int(chunk.length)], chunk.infos)
    return Chunk(chunk.state, chunk.previous, infos, bool(chunk.healthy), list(kept), [])


def _advance_apart(steps: Steps, state: Any, previous: Any, taken: PyTree, length: int) -> Chunk:
    """Every step in two programs.

    The device works through them while the host goes on, and all states are kept until the records
    tell which is the last that is finite.
    """
    stage, target, thin = steps.stage, steps.target, steps.thin
    evaluate, positions = Evaluation(target), stage.positions(state)
    (own, own_arrays), (form, arrays) = Form.of(stage), Form.of(state)
    states, infos, first = [arrays], [], int(state.step)
    # On the host: JAX would compile a program for every length.
    is_due = jax.device_get(stage).is_due(state, first + np.arange(length))
    due = np.broadcast_to(np.asarray(is_due), length)
    for i in range(length):
        found = evaluate(positions) if taken is None else evaluate(positions, taken, i)
        if due[i]:
            arrays = Form.of(stage.prepare(form.tree(arrays), found, key=steps.key))[1]
        arrays, positions, info = _update(
            own, form, target.flows_as_noisy, own_arrays, arrays, found, steps.key
        )
        states.append(arrays)
        infos.append(info)
    infos = Packed.stacked(infos)
    is_faulty = (infos.num_faulty_scores > 0) | (infos.num_faulty_moves > 0)
    healthy = not is_faulty.any()
    last = length if healthy else int(is_faulty.argmax())
    infos = jax.tree.map(lambda values: values[: last + (not healthy)], infos)
    kept = []
    if thin is not None:
        at = [i for i in range(1, last + 1) if (first + i) % thin == 0]
        kept = [form.tree(states[i]).particles for i in at]
    draw_steps = stage.kept_steps(*state.particles.shape)
    draws = [form.tree(states[i]) for i in range(1, last + 1) if first + i in draw_steps]
    if last:
        previous = form.tree(states[last - 1])
    return Chunk(form.tree(states[last]), previous, infos, healthy, kept, draws)


def _updated(
    own: Form,
    form: Form,
    is_noisy: bool,
    own_arrays: list[Array],
    arrays: list[Array],
    found: Scores,
    key: PRNGKeyArray,
) -> tuple[list[Array], Float[Array, "n d"], "Packed"]:
    """The stage's own part of a step, which all targets of a shape share.

    Returns the arrays of the new state, and the positions at which to evaluate the target next.
    """
    stage: AbstractStage = own.tree(own_arrays)
    view = TargetView.hidden(is_noisy=is_noisy)
    state, info = stage.update(form.tree(arrays), found, view, key=key)
    return Form.of(state)[1], stage.positions(state), Packed.of(info)


_update = Program(_updated, 3, effort=1)


class _Loop(NamedTuple):
    state: Any
    """After the last step tried, whether or not it is healthy."""
    previous: Any
    infos: StepInfo
    """Leading axis `CAPACITY`; only the first `length` entries are valid."""
    length: Int[Array, ""]
    """Number of steps tried."""
    healthy: Bool[Array, ""]


@compiled
def advance_together(
    steps: Steps, state: Any, previous: Any, taken: PyTree, length: Int[Array, ""]
) -> tuple[_Loop, Float[Array, "slots n d"]]:
    """Many steps in one program."""
    target, placement, thin = steps.target, steps.placement, steps.thin
    first, shape = state.step, state.particles.shape

    def step(state: Any, i: Array) -> tuple[Any, StepInfo]:
        share = jax.tree.map(lambda leaf: leaf[i], taken)
        batch = None if taken is None else placement.constrain_batch(target.batch(share))
        state, info = steps.stage.step(target, state, batch, key=steps.key)
        return placement.constrain_particles(state, *shape), info

    def goes_on(carry: tuple[_Loop, Array]) -> Array:
        loop, _ = carry
        return loop.healthy & (loop.length < length)

    def body(carry: tuple[_Loop, Array]) -> tuple[_Loop, Array]:
        loop, kept = carry
        moved, info = step(loop.state, loop.length)
        healthy = (info.num_faulty_scores == 0) & (info.num_faulty_moves == 0)
        if thin is not None:
            # Each step overwrites the slot of its stride; the last step of the stride remains.
            kept = kept.at[loop.state.step // thin - first // thin].set(moved.particles)
        loop = _Loop(
            state=moved,
            previous=loop.state,
            infos=jax.tree.map(lambda all_, one: all_.at[loop.length].set(one), loop.infos, info),
            length=loop.length + 1,
            healthy=healthy,
        )
        return loop, kept

    _, info = eqx.filter_eval_shape(step, state, jnp.array(0))
    infos = jax.tree.map(lambda leaf: jnp.zeros((CAPACITY, *leaf.shape), leaf.dtype), info)
    slots = 0 if thin is None else CAPACITY // thin + 2
    start = _Loop(state, previous, infos, jnp.array(0), jnp.array(True))
    return jax.lax.while_loop(
        goes_on, body, (start, jnp.zeros((slots, *shape), state.particles.dtype))
    )
