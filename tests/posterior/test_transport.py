"""Draws pushed through a flow's fields: positions, density, weights, evidence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import genpareto

import nvgd
from nvgd import coordinates
from nvgd.densities import Banana, Gaussian
from nvgd.posterior.importance import Weighted, generalised_pareto_fit

GAUSSIAN = Gaussian([1.0, -1.0], [[1.0, 0.5], [0.5, 1.0]])
NETWORK = {"learning_rate": 1e-3, "max_inner_steps": 10, "patience": 10}


@pytest.fixture(scope="module")
def transport():
    target = nvgd.Target(GAUSSIAN.log_density, dim=2)
    return nvgd.learn_transport(
        target,
        nvgd.SVGD(0.3, coordinates=coordinates.Whitened()),
        num_particles=60,
        num_steps=40,
    )


def test_particles_pushed_again_end_where_the_flow_took_them(transport):
    start_key = jax.random.split(jax.random.key(0), 3)[0]
    pushed = transport.push(transport.base.sample(start_key, 60))
    assert np.allclose(pushed.positions, transport.particles, atol=1e-4)


def test_the_log_determinant_is_that_of_the_whole_map(transport):
    draws = transport.base.sample(jax.random.key(5), 30)
    whole = jax.vmap(jax.jacfwd(lambda x: transport.push(x[None]).positions[0]))(draws)
    expected = jnp.linalg.slogdet(whole)[1]
    pushed = transport.push(draws)
    assert not jnp.any(pushed.is_folded)
    assert np.allclose(pushed.log_determinants, expected, atol=1e-3)
    keys = jax.random.split(jax.random.key(0), 40)
    estimates = jnp.stack(
        [transport.push(draws, "stochastic", key=key).log_determinants for key in keys]
    )
    error = estimates.std(axis=0) / np.sqrt(40)
    assert np.all(np.abs(estimates.mean(axis=0) - expected) < 4 * error + 1e-3)


def test_fresh_draws_are_pushed_draws_and_their_weights_mend_the_moments(transport):
    weighted = transport.weigh(2000, seed=3)
    assert np.allclose(weighted.mean(), GAUSSIAN.mean, atol=0.2)
    second = weighted.mean(weighted.positions**2) - weighted.mean() ** 2
    assert np.allclose(second, np.diagonal(GAUSSIAN.covariance), rtol=0.3)
    assert abs(weighted.log_evidence) < 3 * weighted.standard_error
    draws = transport.base.sample(jax.random.key(3), 30)
    assert np.allclose(transport.sample(30, seed=3), transport.push(draws).positions, atol=1e-5)


def test_evidence_of_a_conjugate_regression():
    """y = Xβ + N(0, ½²), β ~ N(0, I): y ~ N(0, XXᵀ + ¼I)."""
    features = np.random.default_rng(0).normal(size=(12, 2))
    response = features @ [1.0, -0.5] + 0.5 * np.random.default_rng(1).normal(size=12)
    covariance = features @ features.T + 0.25 * np.eye(12)
    truth = float(
        -0.5 * response @ np.linalg.solve(covariance, response)
        - 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    )
    x, y = jnp.asarray(features, jnp.float32), jnp.asarray(response, jnp.float32)

    def log_joint(beta):
        prior = jax.scipy.stats.norm.logpdf(beta).sum()
        return prior + jax.scipy.stats.norm.logpdf(y, x @ beta, 0.5).sum()

    target = nvgd.Target(log_joint, dim=2)
    flow = nvgd.SVGD(0.3, coordinates=coordinates.Curved())
    weighted = nvgd.learn_transport(target, flow, num_particles=60, num_steps=40).weigh(1000)
    assert abs(weighted.log_evidence - truth) < 3 * weighted.standard_error
    assert weighted.standard_error < 0.1


def test_evidence_of_a_banana_by_a_learned_field():
    target = nvgd.Target(Banana().log_density, dim=2)
    flow = nvgd.NVGD.paper(0.05, coordinates=coordinates.Whitened(), **NETWORK)
    transport = nvgd.learn_transport(target, flow, num_particles=200, num_steps=150)
    weighted = transport.weigh(1000)
    assert weighted.is_reliable
    assert abs(weighted.log_evidence) < 3 * weighted.standard_error
    assert weighted.standard_error < 0.1
    assert np.allclose(weighted.resample(1000).std(axis=0), [3.0, 1.62], rtol=0.15)


def test_the_tails_shape_is_found():
    rng = np.random.default_rng(0)
    for shape in (0.1, 0.5, 0.9):
        draws = np.sort(genpareto.rvs(shape, scale=2.0, size=4000, random_state=rng))
        fitted, scale = generalised_pareto_fit(draws)
        assert abs(fitted - shape) < 0.07
        assert np.isclose(scale, 2.0, rtol=0.1)


def test_weights_tell_good_from_bad():
    draws = np.random.default_rng(0).normal(size=(4000, 1))

    def weighted(scale):  # N(0, scale²), normalised to 5, from draws of N(0, 1)
        log_p = np.log(5) - 0.5 * (draws[:, 0] / scale) ** 2 - np.log(scale)
        return Weighted(draws, log_p + 0.5 * draws[:, 0] ** 2)

    narrow, wide = weighted(0.8), weighted(3.0)
    assert narrow.is_reliable
    assert not wide.is_reliable
    assert abs(narrow.log_evidence - np.log(5)) < 3 * narrow.standard_error
    assert narrow.effective_size > wide.effective_size
    assert np.allclose(narrow.mean(), 0.0, atol=0.05)
    assert np.isclose(np.std(narrow.resample(2000)), 0.8, atol=0.05)
    rng = np.random.default_rng(1)
    # One draw has all the weight; the others have none that a number can hold.
    for log_weights in (1000 * rng.normal(size=4000), np.where(np.arange(4000) == 3, 0, -np.inf)):
        hopeless = Weighted(draws, log_weights)
        assert not hopeless.is_reliable
        assert hopeless.effective_size < 2
    assert Weighted(draws, np.zeros(4000)).is_reliable
    assert Weighted(draws, np.minimum(rng.normal(size=4000), 0.0)).is_reliable
    with pytest.raises(nvgd.InputError, match="no draw has a finite weight"):
        Weighted(draws, np.full(4000, -np.inf))
