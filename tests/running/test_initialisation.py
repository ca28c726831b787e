"""Where particles start: prior draws, jitter, normal approximations, and what cannot start."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd._support.random_bits import random_normals
from nvgd.densities import Gaussian
from nvgd.running.initialisation import starting_particles

KEY = jax.random.key(0)
SINGLE = jnp.dtype(jnp.float32)


def start(target, initial, num=400):
    return np.asarray(starting_particles(target, initial, num, None, KEY))


def test_prior_draws():
    prior = nvgd.Model(prior=lambda key, n: 3 + jax.random.normal(key, (n, 2)))
    target = nvgd.Target(lambda x: -x @ x, dim=2, model=prior)
    assert np.allclose(start(target, "prior").mean(axis=0), 3, atol=0.2)
    wrong = nvgd.Model(prior=lambda key, n: jnp.zeros((n, 3)))
    target = nvgd.Target(lambda x: -x @ x, dim=2, model=wrong)
    with pytest.raises(nvgd.InputError, match=r"the output of prior must be an array"):
        start(target, "prior")


def test_jitter_around_a_point():
    def log_density(at):
        return -(at["a"] ** 2) - jnp.sum(at["b"] ** 2)

    target = nvgd.Target(log_density, example={"a": 0.0, "b": jnp.zeros(2)})
    point = {"a": 1.0, "b": jnp.array([2.0, 3.0])}
    particles = start(target, nvgd.Jittered(point, scale=0.5))
    assert np.allclose(particles.mean(axis=0), [1, 2, 3], atol=0.1)
    assert np.allclose(particles.std(axis=0), 0.5, atol=0.07)


def test_infeasible_draws_are_drawn_again():
    """Half of the draws lie where the log density is not defined; those alone are replaced."""
    target = nvgd.Target(lambda x: jnp.log(x[0]) - x @ x, dim=2)
    particles = start(target, None)
    assert np.all(particles[:, 0] > 0)
    first = np.asarray(random_normals(KEY, (400, 2), SINGLE))
    good = first[:, 0] > 0
    assert np.array_equal(particles[good], first[good])


@pytest.mark.parametrize("max_dense", [300, 1])
def test_laplace_fits_a_far_and_badly_scaled_normal(monkeypatch, max_dense):
    """Exactly with the whole Hessian, in its scales with the diagonal."""
    monkeypatch.setattr("nvgd.running.pathfinder.MAX_DENSE_DIMENSION", max_dense)
    covariance = np.diag([100.0, 0.01, 1.0])
    if max_dense > 1:
        covariance[0, 2] = covariance[2, 0] = 8.0
    density = Gaussian([50.0, -2.0, 7.0], covariance)
    particles = start(nvgd.Target(density.log_density, dim=3), "laplace", 2000)
    scales = np.sqrt(np.diag(covariance))
    assert np.allclose((particles.mean(axis=0) - density.mean) / scales, 0, atol=0.1)
    assert np.allclose(np.cov(particles.T) / np.outer(scales, scales), covariance
                       / np.outer(scales, scales), atol=0.12)  # fmt: skip


def test_laplace_finds_a_normal_of_any_size():
    density = Gaussian([3e6, -2e6], np.diag([1e12, 1e10]))
    particles = start(nvgd.Target(density.log_density, dim=2), "laplace", 2000)
    standard = (particles - np.array([3e6, -2e6])) / np.array([1e6, 1e5])
    assert np.allclose(standard.mean(axis=0), 0, atol=0.1)
    assert np.allclose(standard.std(axis=0), 1, atol=0.1)


def test_laplace_stays_out_of_a_spike():
    """A funnel's density grows far into its neck: the way there is better than its end."""

    def funnel(x):
        return -0.5 * (x[0] / 3) ** 2 - 0.5 * jnp.sum(x[1:] ** 2) * jnp.exp(-x[0]) - 4 * x[0] / 2

    particles = start(nvgd.Target(funnel, dim=5), "laplace")
    assert np.all(np.isfinite(particles))
    assert particles[:, 0].std() > 0.5
    assert -15 < particles[:, 0].mean() < 3


def test_laplace_sees_all_data_of_minibatches():
    rows = np.random.default_rng(0).normal(4.0, 1.0, 3000).astype(np.float32)
    target = nvgd.Target(
        lambda x: -0.5 * x @ x,
        dim=1,
        log_likelihood=lambda x, row: -0.5 * (row - x[0]) ** 2,
        data=rows,
        batch_size=10,
    )
    posterior = nvgd.sample(target, nvgd.SGLD(1e-9), initial=nvgd.Laplace(scale=1.0), num_steps=1,
                            num_particles=500, progress=False)  # fmt: skip
    particles = np.asarray(posterior.particles)
    assert np.isclose(particles.mean(), rows.sum() / 3001, atol=0.005)
    assert np.isclose(particles.std(), 3001**-0.5, rtol=0.15)
