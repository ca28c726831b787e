"""Samplers against the truth; tolerances are three times the spread of replicated runs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd import coordinates, directions, movers
from nvgd.densities import Funnel, Gaussian


def correlated(dim: int) -> Gaussian:
    index = np.arange(dim)
    return Gaussian(np.linspace(-1, 1, dim), 0.5 ** np.abs(index[:, None] - index))


@pytest.mark.parametrize(
    ("flow", "dim", "mean_tolerance", "covariance_tolerance"),
    [
        (nvgd.NVGD(), 5, 0.05, 0.1),
        (nvgd.NVGD.paper(0.05, learning_rate=1e-3), 10, 0.2, 0.25),
        (nvgd.SVGD(1.0), 10, 0.1, 0.45),
        (nvgd.ULA(0.02), 2, 0.2, 0.3),
        (nvgd.ULA(0.02), 10, 0.2, 0.3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nvgd.ParticleFlow) else str(value),
)
def test_moments_of_a_correlated_gaussian(flow, dim, mean_tolerance, covariance_tolerance):
    density = correlated(dim)
    posterior = nvgd.sample(
        density.log_density,
        flow,
        dim=dim,
        num_particles=300,
        # The default needs fewer steps, and more time for each.
        num_steps=100 if isinstance(flow, nvgd.NVGD) else 400,
        progress=False,
    )
    particles = np.asarray(posterior.particles)
    mean_error = np.abs(particles.mean(axis=0) - density.mean)
    covariance_error = np.abs(np.cov(particles.T) - density.covariance)
    assert mean_error.max() < mean_tolerance
    assert covariance_error.max() < covariance_tolerance


@pytest.mark.parametrize("step_size", [0.05, 0.2, 0.5])
def test_ula_has_the_known_stationary_variance(step_size):
    """x ← (1 − ε/σ²)x + √(2ε)ξ has variance σ²/(1 − ε/(2σ²)), larger than the target's."""
    variance = 0.5
    expected = variance / (1 - step_size / (2 * variance))
    density = Gaussian([0.0], [variance])
    posterior = nvgd.sample(
        density.log_density,
        nvgd.ULA(step_size),
        dim=1,
        num_particles=20_000,
        num_steps=200,
        progress=False,
    )
    # The standard error of a variance from 20,000 independent chains is 1 %.
    assert np.isclose(np.var(posterior.particles), expected, rtol=0.035)


def test_sequential_ula_keeps_every_kth_state_of_one_chain():
    density = Gaussian([1.0], [0.5])
    posterior = nvgd.sample(
        density.log_density,
        nvgd.ULA(0.1),
        dim=1,
        num_particles=1,
        num_steps=40_000,
        thin=20,
        progress=False,
    )
    assert posterior.particles.shape == (2000, 1)
    assert np.isclose(np.mean(posterior.particles), 1.0, atol=0.08)
    assert np.isclose(np.var(posterior.particles), 0.5 / (1 - 0.1), rtol=0.15)


def test_the_papers_nvgd_ends_nearer_the_funnel_than_ula_at_the_same_step_size():
    funnel = Funnel(2)
    target = nvgd.Target(funnel.log_density, dim=2)
    reference = funnel.sample(jax.random.key(99), 2000)

    def final_particles(flow, key):
        start_key, run_key = jax.random.split(key)
        particles = jax.random.normal(start_key, (100, 2))
        state = flow.init(target, particles, key=run_key)
        state, _ = jax.lax.scan(
            lambda state, _: flow.step(target, state, key=run_key), state, length=400
        )
        return state.particles

    keys = jax.random.split(jax.random.key(0), 3)
    scores = {}
    for flow in (nvgd.NVGD.paper(1e-2), nvgd.ULA(1e-2)):
        particles = eqx.filter_jit(jax.vmap(lambda key, flow=flow: final_particles(flow, key)))(
            keys
        )
        scores[type(flow)] = [
            (nvgd.metrics.mmd_squared(x, reference), nvgd.metrics.energy_distance(x, reference))
            for x in particles
        ]
    nvgd_scores, ula_scores = (np.mean(values, axis=0) for values in scores.values())
    assert nvgd_scores[0] < ula_scores[0] - 0.004
    assert nvgd_scores[1] < ula_scores[1]


def test_diagonal_coordinates_make_the_flow_blind_to_scale():
    """On x and on 100·x (one coordinate stretched) the flow takes corresponding steps."""
    stretch = jnp.array([1.0, 100.0])
    density = Gaussian([0.5, -0.5], [[1.0, 0.3], [0.3, 1.0]])
    start = jax.random.normal(jax.random.key(0), (40, 2))
    flow = nvgd.SVGD(0.2, coordinates=coordinates.Diagonal())
    plain = nvgd.sample(density.log_density, flow, dim=2, initial=start, progress=False)
    stretched = nvgd.sample(
        lambda x: density.log_density(x / stretch),
        flow,
        dim=2,
        initial=start * stretch,
        progress=False,
    )
    assert jnp.allclose(stretched.particles / stretch, plain.particles, atol=2e-3)
    assert np.allclose(np.std(plain.particles, axis=0), 1.0, atol=0.1)


def test_the_default_is_nearer_a_rotated_funnel_than_exact_draws():
    """Nothing is told about the funnel: not its axis, not its scales, no step size."""
    dim = 5
    funnel = Funnel(dim)
    turn = jnp.linalg.qr(jax.random.normal(jax.random.key(3), (dim, dim)))[0]
    posterior = nvgd.sample(
        lambda x: funnel.log_density(turn @ x),
        dim=dim,
        num_particles=200,
        num_steps=300,
        progress=False,
    )
    reference = funnel.sample(jax.random.key(99), 4000)
    particles = posterior.particles @ turn.T
    exact = [
        nvgd.metrics.energy_distance(funnel.sample(jax.random.key(i), 200), reference)
        for i in range(5)
    ]
    assert nvgd.metrics.energy_distance(particles, reference) < np.mean(exact)
    assert np.isclose(np.std(particles[:, 0]), 3.0, rtol=0.15)


def test_the_default_needs_no_help_with_a_badly_scaled_target_far_away():
    scales = np.array([1e-3, 1.0, 1e3])
    correlation = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.3], [0.0, 0.3, 1.0]])
    density = Gaussian([0.5, 30.0, -1e4], correlation * scales[:, None] * scales)
    posterior = nvgd.sample(
        density.log_density, dim=3, num_particles=200, num_steps=600, progress=False
    )
    particles = np.asarray(posterior.particles, np.float64)
    assert np.allclose((particles.mean(axis=0) - density.mean) / scales, 0.0, atol=0.1)
    assert np.allclose(particles.std(axis=0) / scales, 1.0, atol=0.1)
    assert np.allclose(np.corrcoef(particles.T), correlation, atol=0.1)


def test_the_papers_method_stays_what_it_is():
    flow = nvgd.NVGD.paper()
    assert isinstance(flow.coordinates, coordinates.Identity)
    assert isinstance(flow.mover, movers.Euler)
    assert flow.mover.step_size == 1e-2
    expected = {
        "witness": None,
        "width": 32,
        "depth": 2,
        "learning_rate": 1e-4,
        "max_inner_steps": 50,
        "patience": 15,
        "train_fraction": 2 / 3,
        "restore_best": True,
    }
    assert {name: getattr(flow.direction, name) for name in expected} == expected
    target = nvgd.Target(Funnel(2).log_density, dim=2)
    particles = jax.random.normal(jax.random.key(0), (30, 2))
    parts = nvgd.ParticleFlow(coordinates.Identity(), directions.Neural(), movers.Euler(1e-2))
    ends = []
    for each in (flow, parts):
        state = each.init(target, particles, key=jax.random.key(1))
        state, _ = eqx.filter_jit(each.step)(target, state, key=jax.random.key(2))
        ends.append(state.particles)
    assert jnp.array_equal(*ends)
