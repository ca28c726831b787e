"""Every wrapper × wrapper × mover: refused with a sentence, or it keeps the contracts.

Shapes are checked by tracing alone; what a number must tell is computed for the few combinations
that claim it.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nvgd
from nvgd import coordinates, directions, movers, stein

NETWORK = directions.Neural(width=4, depth=1, max_inner_steps=2)
BASES = {
    "neural": NETWORK,
    "kernel": directions.Kernel(stein.RBF(1.0)),
    "langevin": directions.Langevin(),
    "stochastic": directions.Stochastic(NETWORK, num_batches=2),
}
WRAPPERS = {
    "": lambda direction: direction,
    "fraction": lambda direction: directions.LangevinFraction(direction, 0.5),
    "annealed": lambda direction: directions.Annealed(direction, num_steps=4),
    "halves": lambda direction: directions.Halves(direction),
    "projected": lambda direction: directions.Projected(direction, 2),
    "repulsive": lambda direction: directions.SelfRepulsive(direction, memory=2, every=1),
}
SCHEDULE = directions.Cycles()
EULER = movers.Euler(0.01)
MOVERS = {
    "euler": EULER,
    "optax": movers.Optax(optax.adam(0.01)),
    "capped": movers.Capped(),
    "reborn": movers.Reborn(movers.Capped()),
    "reborn euler": movers.Reborn(EULER),
    "metropolis": movers.Metropolis(EULER),
    "momentum": movers.Momentum(0.01),
    "noise aware": movers.NoiseAware(EULER, num_parts=2),
    "resampled": movers.Resampled(EULER, SCHEDULE, num_steps=4),
}
ROWS = jax.random.normal(jax.random.key(5), (12, 3))
WHOLE, BATCHED = (
    nvgd.Target(
        lambda x: -0.5 * x @ x,
        dim=3,
        log_likelihood=lambda x, row: -0.05 * jnp.sum((row - x) ** 2),
        data=ROWS,
        batch_size=batch_size,
    )
    for batch_size in (None, 4)
)
PARTICLES = jax.random.normal(jax.random.key(7), (8, 3))
KEY = jax.random.key(0)


def check_sentence(error):
    """One sentence or two that say what was given, or the way out after a colon."""
    text = str(error)
    assert text.endswith("."), text
    assert "\n" not in text, text
    assert ": " in text or ", got " in text, text


def combined(outer, inner, base, mover):
    """The flow, or None if it is refused."""
    try:
        direction = WRAPPERS[outer](WRAPPERS[inner](BASES[base]))
        return nvgd.ParticleFlow(coordinates.Identity(), direction, MOVERS[mover])
    except nvgd.InputError as error:
        check_sentence(error)
        return None


def fits(flow, target):
    """Whether the flow can start on the target; refused with a sentence otherwise."""
    try:
        eqx.filter_eval_shape(flow.init, target, PARTICLES, key=KEY)
    except nvgd.InputError as error:
        check_sentence(error)
        return False
    return True


PAIRS = [
    (outer, inner)
    for outer, inner in itertools.product(WRAPPERS, WRAPPERS)
    if outer or not inner  # the same as inner alone
]


@pytest.mark.parametrize("base", BASES)
def test_what_is_not_refused_keeps_its_shapes_and_counts_its_gradients(base):
    num_accepted = 0
    for (outer, inner), mover in itertools.product(PAIRS, MOVERS):
        flow = combined(outer, inner, base, mover)
        if flow is None:
            continue
        # A half that rests is only left alone by Metropolis.
        assert mover == "metropolis" or "halves" not in (outer, inner)
        # Each on one target: batches where they are needed.
        target = next((t for t in (WHOLE, BATCHED) if fits(flow, t)), None)
        if target is None:
            continue
        num_accepted += 1

        def once(target=target, flow=flow):
            state = flow.init(target, PARTICLES, key=KEY)
            batch = ROWS[:4] if target.is_noisy else None
            after, info = flow.step(target, state, batch, key=KEY)
            return state, after, info

        state, after, info = eqx.filter_eval_shape(once)
        name = (outer, inner, base, mover)
        assert jax.tree.structure(state) == jax.tree.structure(after), name
        for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype), name
        assert all(leaf.shape == () for leaf in jax.tree.leaves(info)), name
    assert num_accepted > 10


EXACT = [
    (outer, inner, base)
    for (outer, inner), base in itertools.product(PAIRS, BASES)
    if combined(outer, inner, base, "metropolis") is not None
]


def test_which_directions_metropolis_takes():
    assert ("", "", "langevin") in EXACT
    assert ("halves", "fraction", "neural") in EXACT
    assert ("halves", "fraction", "kernel") in EXACT
    assert not any("annealed" in (outer, inner) for outer, inner, _ in EXACT)
    assert not any(outer == "projected" or inner == "repulsive" for outer, inner, _ in EXACT)


@pytest.mark.parametrize(("outer", "inner", "base"), EXACT)
def test_a_proposal_that_metropolis_takes_depends_on_no_particle_that_moves(outer, inner, base):
    flow = combined(outer, inner, base, "metropolis")
    assert flow is not None
    target = BATCHED if base == "stochastic" else WHOLE
    if not fits(flow, target):
        return

    @eqx.filter_jit
    def aimed(particles):
        # Weights of one state for both: only the particles differ.
        state = flow.init(target, PARTICLES, key=KEY)._replace(particles=particles)
        field = flow.aim(target, state, key=KEY).aim.field
        assert field is not None
        return field(PARTICLES, -PARTICLES), field.rows(len(particles))

    velocities, rows = aimed(PARTICLES)
    moved, _ = aimed(PARTICLES.at[rows].add(1.0))
    assert np.array_equal(velocities, moved)


@pytest.mark.parametrize(
    "build",
    [
        # Projected fits its subspace to all particles.
        lambda: directions.LangevinFraction(directions.Projected(directions.Halves(NETWORK)), 0.5),
        # The inner state, and with it the temperature, would be thrown away.
        lambda: directions.Halves(directions.Annealed(NETWORK)),
        # The complement and the score would be at another temperature.
        lambda: directions.LangevinFraction(
            directions.Projected(directions.Annealed(NETWORK)), 0.5
        ),
        # Fresh batches cannot be asked for from within a subspace.
        lambda: directions.Projected(directions.Stochastic()),
        # The resting half would be pushed, and given noise.
        lambda: directions.SelfRepulsive(directions.Halves(directions.Langevin())),
        # Copies would have the past of the particle whose place they take.
        lambda: nvgd.ParticleFlow(
            coordinates.Identity(),
            directions.Annealed(directions.SelfRepulsive(directions.Langevin()), SCHEDULE),
            movers.Resampled(EULER, SCHEDULE),
        ),
        lambda: movers.Reborn(movers.Momentum(0.1)),
        # Noise is estimated at the target's own temperature.
        lambda: nvgd.ParticleFlow(
            coordinates.Identity(),
            directions.Annealed(directions.Langevin()),
            movers.NoiseAware(EULER),
        ),
    ],
    ids=[
        "projected halves",
        "halves annealed",
        "projected annealed",
        "projected stochastic",
        "repulsive halves",
        "resampled past",
        "reborn momentum",
        "noise aware annealed",
    ],
)
def test_combinations_that_would_silently_be_wrong_are_refused(build):
    with pytest.raises(nvgd.InputError) as refused:
        build()
    check_sentence(refused.value)


def test_halves_around_a_projection_is_exact():
    inner = directions.LangevinFraction(directions.Projected(NETWORK, 2), 0.5)
    flow = nvgd.ParticleFlow(
        coordinates.Identity(), directions.Halves(inner), movers.Metropolis(EULER)
    )

    @eqx.filter_jit
    def aimed(particles):
        state = flow.init(WHOLE, PARTICLES, key=KEY)._replace(particles=particles)
        field = flow.aim(WHOLE, state, key=KEY).aim.field
        assert field is not None
        return field(PARTICLES, -PARTICLES)

    assert np.array_equal(aimed(PARTICLES), aimed(PARTICLES.at[4:].add(1.0)))


@pytest.mark.parametrize("inner", ["", "fraction", "projected", "repulsive"])
@pytest.mark.parametrize("base", ["neural", "kernel"])
def test_what_is_annealed_anneals(inner, base):
    flow = combined("annealed", inner, base, "euler")
    assert flow is not None

    @eqx.filter_jit
    def temperatures():
        state = flow.init(WHOLE, PARTICLES, key=KEY)
        _, infos = jax.lax.scan(lambda state, _: flow.step(WHOLE, state, key=KEY), state, length=4)
        return infos.diagnostics["inverse_temperature"]

    assert np.all(np.diff(temperatures()[:3]) > 0)
