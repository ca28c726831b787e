"""Fresh draws: points that are carried along a run which is taken once more.

Every step's field could be stored instead (`nvgd.transport` does, where weights are wanted): for
the default flow that is a network, a frame and a sorted ensemble a step. A run is a function of its
seed, so it is cheaper to take it again than to keep it, and nothing has to be decided beforehand.

Once the particles are at rest their field is noise around zero. The next field corrects what the
last one did to the ensemble, but not what it did to a point that has no part in it: points drift
apart from the target, the longer the run the more. Hence the corrections at the end.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from nvgd.chunks import CAPACITY
from nvgd.compilation import compiled
from nvgd.coordinates import Preconditioned
from nvgd.corrections import Corrections
from nvgd.data import steps_at_a_time
from nvgd.directions import LangevinDirection
from nvgd.errors import InputError
from nvgd.flow import FlowState, ParticleFlow
from nvgd.initialisation import is_faulty, starting_particles
from nvgd.movers import Euler, Metropolis
from nvgd.recipes import Recipe, first_flow
from nvgd.robust import coordinate_scales, student_scatter
from nvgd.runs import first_of, padded
from nvgd.starts import AbstractStart
from nvgd.target import Target

# Corrections at the end of a draw's way, if nothing else is asked for.
NUM_CORRECTIONS = 50


class _Carried(NamedTuple):
    """The run as it was, and the points beside it."""

    state: FlowState
    points: Float[Array, "m d"]
    mover: PyTree


def carry(
    recipe: Recipe, num_points: int, initial: AbstractStart | str | PyTree, seed: int
) -> Float[Array, "m d"]:
    """Take the run again, and move fresh starting points along the fields of its particles.

    The points have no part in it: fields are fitted to the run's own particles, which end where
    they did (up to rounding, as it is another program). Points do not depend on each other, unless
    the mover resamples them, as `Capped` does between modes. A direction that asks for noise gives
    every point noise of its own.
    """
    _check(recipe)
    target = recipe.target
    run_keys = jax.random.split(jax.random.key(recipe.seed), 3)
    # Away from the keys of the run, whichever seed is asked for.
    start_key, noise_key = jax.random.split(jax.random.fold_in(run_keys[0], seed))
    batches = target.batches(recipe.seed)
    taken = None if batches is None else first_of(batches, 0)
    particles = starting_particles(
        target, recipe.initial, _number_asked_for(recipe), taken, run_keys[0]
    )
    points = starting_particles(target, initial, num_points, taken, start_key)

    first = first_flow(recipe.stages)
    state = first.init(target, particles, key=run_keys[1])
    carried = _Carried(state, points, first.mover.init(points))
    capacity = CAPACITY if taken is None else steps_at_a_time(taken, CAPACITY)
    step = 0
    for stage in recipe.stages:
        if isinstance(stage.flow, Corrections):
            break
        while step < stage.until_step:
            length = min(capacity, stage.until_step - step)
            shares = None
            if batches is not None:
                shares = padded(batches.take(step, length), capacity)
            carried = _carry(
                stage.flow, target, carried, shares, jnp.array(length), run_keys[2], noise_key
            )
            step += length
    num_lost = int(jnp.sum(is_faulty(target, carried.points, taken)))
    if num_lost:
        raise InputError(
            f"{num_lost} of {num_points} fresh points left the finite numbers on their way: pass "
            "initial= with starting points nearer to the target."
        )
    return carried.points


class _Cycle(eqx.Module):
    """Step sizes large, middle and small by turns: one of them fits the target's scale."""

    largest: float

    def __call__(self, step: Int[Array, ""]) -> Float[Array, ""]:
        return self.largest * 0.3 ** (step % 3)


def corrected(
    target: Target,
    points: Float[Array, "m d"],
    particles: Float[Array, "n d"],
    num_corrections: int,
    seed: int,
) -> Float[Array, "m d"]:
    """Steps of MALA, preconditioned by the scatter of the particles: they leave p invariant."""
    num_particles, dim = particles.shape
    if dim == 1 or num_particles < 2 * dim:
        matrix = jnp.diag(coordinate_scales(particles)[1] ** 2)
    else:
        lower = student_scatter(particles, 4)[1]
        matrix = lower @ lower.T
    mover = Metropolis(Euler(_Cycle(dim ** (-1 / 3))))
    flow = ParticleFlow(Preconditioned(matrix), LangevinDirection(), mover)
    key = jax.random.key(seed)
    state = flow.init(target, points, key=key)
    return _stepped(flow, target, state, jnp.array(num_corrections), key).particles


@compiled
def _stepped(
    flow: ParticleFlow,
    target: Target,
    state: FlowState,
    num_steps: Int[Array, ""],
    key: PRNGKeyArray,
) -> FlowState:
    return jax.lax.fori_loop(
        0, num_steps, lambda _, state: flow.step(target, state, key=key)[0], state
    )


def _number_asked_for(recipe: Recipe) -> int | None:
    """As `sample` was told: particles of the user's own have their number already."""
    return recipe.num_particles if recipe.can_start_anew else None


def _check(recipe: Recipe) -> None:
    direction, mover = recipe.flow.direction, recipe.flow.mover
    if not direction.can_carry or direction.moves_halves:
        raise InputError(
            f"{type(direction).__name__} knows velocities at its own particles only, so that no "
            "other points can be carried along: sample again with another seed instead."
        )
    if not mover.carries:
        raise InputError(
            f"{type(mover).__name__} moves particles by more than their velocities, so that no "
            "other points can be carried along: sample again with another seed instead."
        )


@compiled
def _carry(
    flow: ParticleFlow,
    target: Target,
    carried: _Carried,
    taken: PyTree,
    length: Int[Array, ""],
    key: PRNGKeyArray,
    noise_key: PRNGKeyArray,
) -> _Carried:
    """`length` steps of the run, with the points beside it."""

    def step(i: Array | int, carried: _Carried) -> _Carried:
        state, points, memory = carried
        share = jax.tree.map(lambda leaf: leaf[i], taken)
        batch = None if taken is None else target.batch(share)
        aim = flow.aim(target, state, batch, key=key)
        field = aim.fit.field
        assert field is not None
        expressed, _ = aim.view.frame.express(points, jnp.zeros_like(points))
        log_densities, scores = aim.view.evaluate(expressed)
        is_scored = jnp.isfinite(log_densities) & jnp.all(jnp.isfinite(scores), axis=-1)
        if flow.mover.rescues:
            scores = jnp.where(is_scored[:, None], scores, 0.0)
            log_densities = jnp.where(is_scored, log_densities, -jnp.inf)
        moved, memory = flow.mover.carry(
            expressed,
            field(expressed, scores),
            flow.direction.noise_share,
            memory,
            leaders=aim,
            log_densities=log_densities,
            step=state.step,
            key=jax.random.fold_in(noise_key, state.step),
        )
        state, _ = flow.move(state, aim, key=key)
        return _Carried(state, aim.view.frame.restore(moved), memory)

    return jax.lax.fori_loop(0, length, step, carried)
