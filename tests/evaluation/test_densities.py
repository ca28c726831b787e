"""Normalisation, exact draws and moments of the test densities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nvgd import stein
from nvgd.densities import Banana, Funnel, Gaussian, GaussianMixture, Ring

# A narrow funnel: moments of the paper's own (Var x₂ = e^{4.5}, kurtosis 3e⁹) cannot be estimated.
PLANAR = {
    "gaussian": Gaussian([0.3, -0.2], [[1.0, 0.4], [0.4, 0.5]]),
    "funnel": Funnel(2, scale=0.8),
    "banana": Banana(),
    "mixture": GaussianMixture([[-2.0, 0.0], [2.0, 1.0]], [0.5, 1.0], [0.3, 0.7]),
    "ring": Ring(),
    "wide-ring": Ring(radius=1.0, width=0.8),
}

each_planar = pytest.mark.parametrize("density", PLANAR.values(), ids=PLANAR.keys())


@each_planar
def test_density_integrates_to_one(density):
    axis = np.linspace(-16, 16, 1201)
    grid = jnp.asarray(np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2), jnp.float32)
    mass = jnp.sum(jnp.exp(jax.vmap(density.log_density)(grid))) * (axis[1] - axis[0]) ** 2
    assert np.isclose(mass, 1.0, atol=2e-3)


@each_planar
def test_draws_have_the_stated_moments(density):
    draws = np.asarray(density.sample(jax.random.key(0), 200_000), np.float64)
    error = draws.mean(axis=0) - density.mean
    deviation = np.sqrt(np.diagonal(density.covariance))
    assert np.all(np.abs(error) < 4 * deviation / np.sqrt(len(draws)))
    assert np.allclose(np.cov(draws.T), density.covariance, atol=0.02 * deviation.max() ** 2)


@each_planar
def test_draws_fit_the_density(density):
    """Stein: E f·∇log p + div f = 0 under p, for a few bounded f."""
    draws = density.sample(jax.random.key(1), 50_000)
    scores = jax.vmap(jax.grad(density.log_density))(draws)
    for field in (jnp.tanh, jnp.sin, lambda x: jnp.cos(x[::-1] - 0.5 * x)):
        terms = stein.stein_operator(field, draws, scores, "exact")
        assert jnp.abs(jnp.mean(terms)) < 4 * jnp.std(terms) / jnp.sqrt(len(draws))


@pytest.mark.parametrize("dim", [2, 7])
def test_funnel_is_the_papers(dim):
    """N(x₁; 0, 3²) Π N(xᵢ; 0, e^{x₁}), written out in NumPy."""
    x = np.random.default_rng(0).normal(size=(5, dim))
    expected = -0.5 * np.log(2 * np.pi * 9) - x[:, 0] ** 2 / 18
    expected = expected + np.sum(
        -0.5 * (np.log(2 * np.pi) + x[:, :1] + x[:, 1:] ** 2 / np.exp(x[:, :1])), axis=1
    )
    values = jax.vmap(Funnel(dim).log_density)(jnp.asarray(x, jnp.float32))
    assert np.allclose(values, expected, rtol=1e-4)
    draws = Funnel(dim).sample(jax.random.key(0), 20_000)
    assert np.isclose(np.std(draws[:, 0]), 3.0, rtol=0.03)
    assert np.isclose(np.std(draws[:, 1:] / jnp.exp(draws[:, :1] / 2)), 1.0, rtol=0.03)


def test_ill_conditioned_gaussian_is_the_papers():
    density = Gaussian.ill_conditioned()
    variances = np.diagonal(density.covariance)
    assert density.dim == 50
    assert np.allclose(variances[[0, -1]], [1e-4, 1.0], rtol=1e-4)
    assert np.allclose(np.diff(np.log(variances)), np.log(1e4) / 49, rtol=1e-2)


def test_ring_has_a_finite_score_at_its_centre():
    assert jnp.all(jnp.isfinite(jax.grad(Ring().log_density)(jnp.zeros(2))))
