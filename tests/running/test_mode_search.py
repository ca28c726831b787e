"""The search for modes: finds those without particles, leaves a single mode alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd.running.mode_search import MOST_EVALUATIONS, search_modes
from nvgd.targets.climbs import climb_all

DIM = 20
CENTRE = np.r_[4.0, np.zeros(DIM - 1)]
WEIGHTS, SCALES = np.array([0.3, 0.7]), np.array([0.5, 1.0])


def log_terms(x):
    squares = jnp.stack([jnp.sum((x + CENTRE) ** 2, -1), jnp.sum((x - CENTRE) ** 2, -1)], -1)
    return jnp.log(WEIGHTS) - DIM * jnp.log(SCALES) - 0.5 * squares / SCALES**2


@pytest.fixture(scope="module")
def found():
    """A search after a flow that brought every particle to the wide mode."""
    target = nvgd.Target(lambda x: jax.nn.logsumexp(log_terms(x)), dim=DIM)
    particles = jnp.asarray(CENTRE) + jax.random.normal(jax.random.key(0), (256, DIM))
    starts = np.random.default_rng(1).normal(size=(256, DIM))
    return search_modes(target, particles, starts, jax.random.key(1))


def test_a_narrow_mode_without_particles_gets_its_share_of_them(found):
    in_narrow = np.argmax(log_terms(found.particles), axis=1) == 0
    assert abs(in_narrow.mean() - 0.3) < 0.02
    assert np.std(found.particles[in_narrow][:, 1:]) == pytest.approx(0.5, rel=0.05)


def test_shifts_between_normal_modes_depend_on_the_weights_only(found):
    rng = np.random.default_rng(3)
    narrow = -CENTRE + 0.5 * rng.normal(size=(2000, DIM))
    wide = CENTRE + rng.normal(size=(2000, DIM))
    uniforms = jnp.zeros(2000)
    for start, least in ((narrow, 1.0), (wide, WEIGHTS[0] / WEIGHTS[1])):
        start = jnp.asarray(start, jnp.float32)
        there, log_factors = found.modes.shift(start, uniforms)
        back, log_back = found.modes.shift(there, uniforms)
        assert np.allclose(back, start, atol=1e-4)
        assert np.allclose(log_back, -log_factors, atol=1e-5)
        gain = jax.nn.logsumexp(log_terms(there), axis=1)
        gain -= jax.nn.logsumexp(log_terms(start), axis=1)
        chance = np.exp(np.minimum(gain + log_factors, 0.0))
        assert np.allclose(chance, least, atol=0.02)


def test_a_wide_mode_without_a_peak_of_its_own_is_told_from_the_narrow_one_inside():
    dim, centre = 50, np.r_[4.0, np.zeros(49)]

    def log_density(x):
        wide = jnp.log(0.75) - 0.5 * jnp.sum(x**2)
        narrow = jnp.log(0.25) - dim * jnp.log(0.6) - 0.5 * jnp.sum((x - centre) ** 2) / 0.36
        return jnp.logaddexp(wide, narrow)

    particles = jax.random.normal(jax.random.key(0), (256, dim))
    starts = np.random.default_rng(1).normal(size=(256, dim))
    target = nvgd.Target(log_density, dim=dim)
    found = search_modes(target, particles, starts, jax.random.key(1))
    assert found.modes is not None
    is_moved = np.any(np.asarray(found.particles != particles), axis=1)
    assert abs(is_moved.mean() - 0.25) < 0.02
    assert np.allclose(found.modes.centres, np.stack([centre, 0 * centre]), atol=1e-3)
    masses = np.exp(np.asarray(found.modes.log_masses))
    assert masses[0] / masses.sum() == pytest.approx(0.25, abs=0.01)


def test_a_single_mode_is_left_alone_at_little_cost():
    # A banana: curved, but nowhere separate.
    density = nvgd.densities.Banana()
    target = nvgd.Target(density.log_density, dim=2)
    particles = density.sample(jax.random.key(0), 64)
    starts = np.random.default_rng(1).normal(size=(64, 2))
    found = search_modes(target, particles, starts, jax.random.key(1))
    assert found.modes is None
    assert found.particles is particles
    assert found.num_gradients <= 64 * (sum(MOST_EVALUATIONS) + 10)


def test_a_mode_without_mass_gets_no_particles():
    def log_density(x):
        narrow = -0.5 * jnp.sum((x - 6.0) ** 2) / 0.01 - 4.0
        return jnp.logaddexp(-0.5 * jnp.sum(x**2), narrow)

    particles = jax.random.normal(jax.random.key(0), (64, 4))
    starts, target = 4 * np.asarray(particles), nvgd.Target(log_density, dim=4)
    found = search_modes(target, particles, starts, jax.random.key(1))
    assert found.modes is None
    assert np.array_equal(found.particles, particles)


def test_climbs_arrive_in_badly_scaled_units():
    scales = np.array([0.1, 1.0, 10.0])
    mode = np.array([0.5, -2.0, 30.0])

    def evaluate(x):
        inside = (x - mode) / scales
        return -0.5 * np.sum(inside**2, axis=1), -inside / scales

    starts = np.random.default_rng(0).normal(size=(16, 3))
    climbed = climb_all(evaluate, starts, 60)
    assert climbed.num_evaluations <= 60
    assert np.all(np.abs(climbed.positions - mode) < 0.1 * scales)
