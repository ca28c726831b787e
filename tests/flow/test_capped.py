"""What the default's mover does with noise, with few particles, and between modes."""

import jax
import jax.numpy as jnp
import numpy as np
from aims import aim_of

import nvgd
from nvgd import coordinates, directions, movers
from nvgd.densities import Gaussian
from nvgd.flow.movers.capped import SMALLEST_GAIN, RunningMean
from nvgd.flow.movers.reborn import _resampled


def test_the_gain_is_one_for_a_steady_velocity_and_small_for_noise():
    steady = jnp.ones((1, 5))
    noise = jax.random.normal(jax.random.key(0), (200, 1, 5))
    sure, unsure = RunningMean.zero(steady), RunningMean.zero(steady)
    gains = []
    for step in range(200):
        sure, unsure = sure.add(steady), unsure.add(noise[step])
        assert np.isclose(float(sure.gain(jnp.array(step))[0, 0]), 1.0, atol=1e-5)
        gains.append(float(unsure.gain(jnp.array(step))[0, 0]))
    assert SMALLEST_GAIN <= np.mean(gains[20:]) < 0.05


def test_minibatches_do_not_make_the_default_wider_than_the_posterior():
    """Rows y ~ N(m, I), 20 of 2000 at a time: the noise is ten times the posterior's width."""
    rows = 1.0 + jax.random.normal(jax.random.key(1), (2000, 2))
    target = nvgd.Target(
        lambda mean: -0.5 * 1e-4 * mean @ mean,
        dim=2,
        log_likelihood=lambda mean, row: -0.5 * jnp.sum((row - mean) ** 2),
        data=rows,
        batch_size=20,
    )
    particles = nvgd.sample(target, num_particles=60, num_steps=600, progress=False).particles
    width = 2000**-0.5
    assert np.allclose(particles.std(axis=0) / width, 1.0, atol=0.2)
    assert np.all(abs(particles.mean(axis=0) - rows.mean(axis=0)) < 5 * width)


def test_with_fewer_particles_than_dimensions_every_coordinate_has_its_own_cap():
    mover, particles = movers.Capped(0.1, 0.2), jnp.zeros((3, 40))
    velocities = jnp.ones((3, 40)).at[:, 0].set(1e9)
    moved, _ = mover(
        aim_of(particles, velocities),
        mover.init(particles),
        step=jnp.array(0),
        key=jax.random.key(0),
    )
    assert np.allclose(moved[:, 0], 0.2)
    assert np.allclose(moved[:, 1:], 0.1)


def test_with_few_particles_a_wild_one_holds_up_no_others():
    mover, particles = movers.Capped(0.1, 0.2), jnp.zeros((5, 40))
    state, start = mover.init(particles), particles
    for step in range(20):
        # One of them met a cliff, in the first step only.
        velocities = jnp.ones((5, 40)).at[0, 0].set(1e30 if step == 0 else 1.0)
        particles, state = mover(
            aim_of(particles, velocities), state, step=jnp.array(step), key=jax.random.key(0)
        )
    moved = np.asarray(particles - start)
    assert np.all(moved[1:, 0] > 0.8 * moved[1:, 1])
    assert np.all(abs(moved[0]) < 20 * 3 * 0.2)


def noisy_aim(velocities, without_repulsion=None):
    """The mover's input on minibatches, at zero."""
    aim = aim_of(jnp.zeros_like(velocities), velocities, is_noisy=True)
    return aim._replace(without_repulsion=without_repulsion)


def moves(mover, aims, steps):
    """Displacements of some steps in a row, from zero."""
    state, found = mover.init(aims[0].particles), []
    for aim, step in zip(aims, steps, strict=True):
        key = jax.random.fold_in(jax.random.key(7), step)
        displacements, state = mover(aim, state, step=jnp.array(step), key=key)
        found.append(np.asarray(displacements))
    return found


def test_with_few_particles_noise_makes_shorter_steps_than_a_signal():
    """As long a velocity in both: a quarter of the cap if it changes its sign at random."""
    noise = jax.random.rademacher(jax.random.key(4), (100, 3, 40), jnp.float32)
    lengths = {}
    for name, velocities in (("signal", jnp.ones_like(noise)), ("noise", noise)):
        aims = [noisy_aim(1e6 * each) for each in velocities]
        lengths[name] = np.sqrt(np.mean(moves(movers.Capped(0.1, 0.1), aims, range(100))[-1] ** 2))
    assert np.isclose(lengths["signal"], 0.1, rtol=1e-3)
    assert 0.015 < lengths["noise"] < 0.03


def test_late_steps_of_noise_decay_and_those_of_a_drift_do_not():
    noise = jax.random.rademacher(jax.random.key(4), (100, 3, 40), jnp.float32)
    mover = movers.Capped(0.1, 0.1).for_run(1000)
    aims = [noisy_aim(1e6 * each.at[:, 0].set(1.0)) for each in noise]
    last = moves(mover, aims, range(900, 1000))[-1]
    assert np.allclose(last[:, 0], 0.1, rtol=1e-2)
    assert np.sqrt(np.mean(last[:, 1:] ** 2)) < 0.005


def test_late_steps_replace_the_repulsion_by_the_noise_that_langevin_lacks():
    """Nothing but the repulsion pushes: early steps follow it, late ones have variance 2a."""
    mover = movers.Capped(0.1, 0.1).for_run(1000)
    push = jnp.ones((50, 100))
    aims = [noisy_aim(push, jnp.zeros_like(push))] * 2
    assert np.allclose(moves(mover, aims, (598, 599))[-1], 0.05)
    late = moves(mover, aims, (999, 999))[-1]
    assert np.isclose(np.mean(late**2), 2 * 0.01 * 0.1, rtol=0.02)
    without = moves(mover, [noisy_aim(0 * push)] * 2, (999, 999))[-1]
    assert np.all(without == 0)


def test_minibatches_with_fewer_particles_than_dimensions():
    """A regression whose posterior is known: 40 coefficients, 30 particles."""
    inputs = jax.random.normal(jax.random.key(5), (3000, 40))
    outputs = inputs @ jnp.linspace(-1.0, 1.0, 40) + jax.random.normal(jax.random.key(6), (3000,))
    target = nvgd.Target(
        lambda weights: -0.5 * weights @ weights,
        dim=40,
        log_likelihood=lambda weights, row: -0.5 * (row[1] - row[0] @ weights) ** 2,
        data=(inputs, outputs),
        batch_size=50,
    )
    flow = nvgd.NVGD(corrected=False)
    options = {"num_particles": 30, "num_steps": 800, "progress": False}
    particles = nvgd.sample(target, flow, **options).particles
    covariance = jnp.linalg.inv(inputs.T @ inputs + jnp.eye(40))
    widths = jnp.sqrt(jnp.diag(covariance))
    centre = covariance @ inputs.T @ outputs
    assert np.allclose(particles.std(axis=0) / widths, 1.0, atol=0.35)
    assert np.all(abs(particles.mean(axis=0) - centre) < 0.7 * widths)


def test_resampling_gives_modes_their_weights_and_leaves_a_single_one_alone():
    keys = jax.random.split(jax.random.key(2), 60)
    near = jax.random.normal(jax.random.key(3), (200, 2))
    is_far = jnp.arange(200) < 20
    particles = jnp.where(is_far[:, None], near + 20.0, near)

    def log_density(x):
        gaps = jnp.stack([jnp.sum(x**2), jnp.sum((x - 20.0) ** 2)])
        return jax.nn.logsumexp(-0.5 * gaps)

    step = jax.jit(lambda x, key: _resampled(x, jax.vmap(log_density)(x), key))
    for key in keys:
        particles = step(particles, key)
    assert abs(float(jnp.mean(particles[:, 0] > 10)) - 0.5) < 0.1

    alone = Gaussian.ill_conditioned(2, 1.0).sample(jax.random.key(4), 200)
    once = step(alone, keys[0])
    is_kept = jnp.any(jnp.all(once[:, None] == alone, axis=-1), axis=0)
    assert jnp.mean(is_kept) > 0.85


def test_rebirths_can_be_as_rare_as_one_likes():
    """Also so rare that a multiple of their period is no 32-bit number."""
    mover = movers.Reborn(movers.Capped(), every=2**30)
    flow = nvgd.ParticleFlow(coordinates.Diagonal(), directions.Kernel(), mover)
    posterior = nvgd.sample(
        lambda x: -0.5 * x @ x, flow, dim=2, num_particles=20, num_steps=3, progress=False
    )
    assert posterior.completed
