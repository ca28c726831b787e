"""Accept or reject: the target is kept exactly, whatever the step size is."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import kstest

import nvgd
from nvgd import coordinates, directions, movers, stein
from nvgd.densities import Banana, Funnel

NUM_REPLICATES, NUM_PARTICLES = 60, 50
# With exact moves all particles of all replicates stay independent draws; eight tests are made.
LEVEL = 1e-3 / 8

FLOWS = {
    "halves nvgd": nvgd.NVGD.metropolis(
        0.4, fraction=0.5, width=8, max_inner_steps=3, learning_rate=1e-2
    ),
    "mala": nvgd.MALA(0.4, matrix=[1.0, 0.5]),
}


def independent_normals(density, particles):
    """Coordinates in which draws of the density are independent standard normals."""
    first, second = particles[..., 0], particles[..., 1]
    if isinstance(density, Funnel):
        return first / 3.0, second * jnp.exp(-first / 2)
    return first / 3.0, second - 0.1 * (first**2 - 9.0)


@eqx.filter_jit
def replicates(flow, target, starts, num_steps=10):
    def one(start, key):
        state = flow.init(target, start, key=key)
        return jax.lax.scan(lambda s, _: flow.step(target, s, key=key), state, length=num_steps)

    state, infos = jax.vmap(one)(starts, jax.random.split(jax.random.key(4), len(starts)))
    return state.particles, infos


@pytest.mark.parametrize("density", [Funnel(2), Banana()], ids=["funnel", "banana"])
@pytest.mark.parametrize("name", FLOWS)
def test_exact_draws_stay_exact_draws(name, density):
    target = nvgd.Target(density.log_density, dim=2)
    draws = density.sample(jax.random.key(9), NUM_REPLICATES * NUM_PARTICLES)
    starts = draws.reshape(NUM_REPLICATES, NUM_PARTICLES, 2)
    ends, infos = replicates(FLOWS[name], target, starts)
    for values in independent_normals(density, ends):
        assert kstest(np.asarray(values).ravel(), "norm").pvalue > LEVEL
    # They did move.
    assert 0.1 < float(jnp.mean(infos.diagnostics["acceptance"])) < 0.95
    assert jnp.mean(jnp.any(ends != starts, axis=-1)) > 0.5


def test_the_same_moves_without_the_correction_are_found_out():
    density = Funnel(2)
    target = nvgd.Target(density.log_density, dim=2)
    draws = density.sample(jax.random.key(9), NUM_REPLICATES * NUM_PARTICLES)
    starts = draws.reshape(NUM_REPLICATES, NUM_PARTICLES, 2)
    ends, _ = replicates(nvgd.ULA(0.4), target, starts)
    values = np.nan_to_num(np.asarray(independent_normals(density, ends)[1]).ravel())
    assert kstest(values, "norm").pvalue < 1e-12


def test_a_half_is_moved_at_a_time_by_what_was_learned_from_the_other_alone():
    target = nvgd.Target(Banana().log_density, dim=2)
    inner = directions.LangevinFraction(directions.Kernel(), 0.5)
    flow = flow_of(directions.Halves(inner), METROPOLIS)
    start = Banana().sample(jax.random.key(0), 8)

    @eqx.filter_jit
    def aimed(particles):
        state = flow.init(target, particles, key=jax.random.key(1))
        field = flow.aim(target, state, key=jax.random.key(1)).aim.field
        assert field is not None
        return field(start, start), field.rows(8)

    velocities, rows = aimed(start)
    elsewhere, _ = aimed(start.at[4:].add(1.0))
    assert np.array_equal(velocities, elsewhere)
    assert np.array_equal(rows, [4, 5, 6, 7])
    once = nvgd.sample(target, flow, initial=start, num_steps=1, progress=False)
    twice = nvgd.sample(target, flow, initial=start, num_steps=2, progress=False)
    assert np.array_equal(once.particles[:4], start[:4])
    assert np.array_equal(twice.particles[4:], once.particles[4:])
    assert twice.history["num_gradients"][-1] == 2 * (8 + 4)


NETWORK = directions.Neural()
METROPOLIS = movers.Metropolis(movers.Euler(0.1))
MINIBATCHES = nvgd.Target(
    lambda x: 0.0 * x[0],
    dim=2,
    log_likelihood=lambda x, row: -0.5 * jnp.sum((x - row) ** 2),
    data=jnp.zeros((6, 2)),
    batch_size=3,
)
WHOLE = nvgd.Target(lambda x: -0.5 * x @ x, dim=2)


def flow_of(direction, mover=None, frames=None):
    frames = frames or coordinates.Identity()
    return nvgd.ParticleFlow(frames, direction, mover or movers.Euler(0.1))


def begin(flow, target=WHOLE, num_particles=10):
    return flow.init(target, jnp.zeros((num_particles, 2)), key=jax.random.key(0))


@pytest.mark.parametrize(
    ("combine", "pattern"),
    [
        (lambda: movers.Metropolis(movers.Optax(optax.adam(0.1))), "optimiser's depend"),
        (
            lambda: movers.Resampled(movers.Momentum(0.1), directions.Cycles()),
            "not the state of a mover",
        ),
        (
            lambda: flow_of(
                directions.Annealed(NETWORK, directions.Cycles(2)),
                movers.Resampled(movers.Euler(0.1), directions.Cycles(1)),
            ),
            "must be that of an Annealed direction",
        ),
        (lambda: movers.NoiseAware(movers.Capped()), "plain steps only"),
        (lambda: flow_of(NETWORK, METROPOLIS), "depend on particles that move with it"),
        (
            lambda: flow_of(directions.Halves(NETWORK), METROPOLIS),
            "without noise cannot be reversed",
        ),
        (
            lambda: flow_of(directions.Langevin(), METROPOLIS, coordinates.Adaptive()),
            "fitted to the particles that Metropolis moves",
        ),
        (
            lambda: flow_of(directions.Annealed(directions.Langevin()), METROPOLIS),
            "another temperature than Metropolis accepts at",
        ),
        (lambda: flow_of(directions.Halves(NETWORK)), "half of the particles per step"),
        (
            lambda: directions.Halves(directions.SelfRepulsive(NETWORK)),
            "at its particles only",
        ),
        (
            lambda: directions.LangevinFraction(directions.Annealed(NETWORK), 0.5),
            r"write Annealed\(LangevinFraction",
        ),
        (
            lambda: flow_of(directions.Annealed(NETWORK), frames=coordinates.Adaptive()),
            "hold more than the target's",
        ),
        (
            lambda: flow_of(directions.SelfRepulsive(NETWORK), frames=coordinates.Diagonal()),
            "remembers positions",
        ),
        (
            lambda: flow_of(directions.Langevin(), movers.Optax(optax.sgd(0.1, momentum=0.9))),
            "cannot be moved by Optax",
        ),
        (lambda: flow_of(NETWORK, movers.Momentum(0.1)), "Momentum balances friction with noise"),
        (
            lambda: flow_of(directions.Langevin(), movers.Momentum(0.1), coordinates.Whitened()),
            "express differently in every step",
        ),
        (
            lambda: directions.Projected(directions.Langevin()),
            "around Projected, not inside",
        ),
        (
            lambda: directions.LangevinFraction(NETWORK, 1.5),
            "fraction must lie between 0 and 1",
        ),
        (lambda: stein.PowerNorm(1.0), "finite number > 1"),
        (lambda: coordinates.Preconditioned([[1.0, 2.0], [2.0, 1.0]]), "positive definite"),
        (lambda: nvgd.learn_transport(WHOLE, nvgd.ULA()), "density is not known"),
        (lambda: nvgd.learn_transport(WHOLE, nvgd.NVGD()), "its steps are not maps"),
        (lambda: nvgd.learn_transport(MINIBATCHES, nvgd.SVGD()), "leave the target's batch_size"),
        (lambda: begin(nvgd.MALA(0.1), MINIBATCHES), "minibatches only estimate"),
        (lambda: begin(flow_of(directions.Stochastic())), "this target has none"),
        (
            lambda: begin(
                flow_of(directions.Langevin(), movers.NoiseAware(movers.Euler(0.1))),
                MINIBATCHES,
            ),
            "batch_size must be a multiple",
        ),
        (
            lambda: begin(nvgd.SVGD(coordinates=coordinates.Whitened()), num_particles=2),
            "full rank",
        ),
        (lambda: begin(nvgd.NVGD.metropolis(0.1), num_particles=9), "must be even, got 9"),
        (lambda: begin(flow_of(directions.Annealed(NETWORK))), "needs the length of the run"),
        (lambda: begin(flow_of(directions.Projected(NETWORK, 2))), "rank must be below"),
        (
            lambda: begin(flow_of(NETWORK, frames=coordinates.Preconditioned([1.0]))),
            "one row for each of the 2 dimensions",
        ),
    ],
)
def test_wrong_combinations_are_refused_with_the_reason(combine, pattern):
    with pytest.raises(nvgd.InputError, match=pattern):
        combine()
