"""Metrics against plain NumPy and known values, across block borders."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nvgd import stein
from nvgd._support.pairs import BLOCK, squared_distances
from nvgd.densities import Gaussian
from nvgd.metrics import (
    Reference,
    energy_distance,
    kernel_stein_discrepancy,
    kolmogorov_smirnov,
    mmd_squared,
    sliced_wasserstein,
)


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    return rng.normal(size=(40, 3)), rng.normal(size=(55, 3)) * 1.3 + 0.4


def pair_means(kernel, x, y, unbiased):
    xx, yy, xy = kernel(x, x), kernel(y, y), kernel(x, y)
    if unbiased:
        n, m = len(x), len(y)
        return (
            (xx.sum() - np.trace(xx)) / (n * (n - 1)),
            (yy.sum() - np.trace(yy)) / (m * (m - 1)),
            xy.mean(),
        )
    return xx.mean(), yy.mean(), xy.mean()


def distances(x, y):
    return np.linalg.norm(x[:, None] - y[None], axis=-1)


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("bandwidths", [[1.0], [0.5, 1.0, 4.0]])
def test_mmd_equals_numpy(samples, unbiased, bandwidths):
    x, y = samples

    def kernel(a, b):
        return np.mean([np.exp(-0.5 * distances(a, b) ** 2 / h**2) for h in bandwidths], axis=0)

    xx, yy, xy = pair_means(kernel, x, y, unbiased)
    given = bandwidths[0] if len(bandwidths) == 1 else bandwidths
    value = mmd_squared(jnp.float32(x), jnp.float32(y), given, unbiased=unbiased)
    assert np.isclose(value, xx + yy - 2 * xy, atol=1e-5)


@pytest.mark.parametrize("unbiased", [True, False])
def test_energy_distance_equals_numpy(samples, unbiased):
    x, y = samples
    xx, yy, xy = pair_means(distances, x, y, unbiased)
    value = energy_distance(jnp.float32(x), jnp.float32(y), unbiased=unbiased)
    assert np.isclose(value, 2 * xy - xx - yy, atol=1e-5)


@pytest.mark.parametrize("kernel", [stein.RBF(0.8), stein.IMQ(1.2)], ids=["rbf", "imq"])
@pytest.mark.parametrize("unbiased", [True, False])
def test_kernel_stein_discrepancy_equals_automatic_derivatives(samples, kernel, unbiased):
    particles = jnp.float32(samples[0])
    scores = -2.0 * particles + 0.3

    def k(x, y):
        return kernel.profile(jnp.sum((x - y) ** 2) / kernel.bandwidth**2)

    def stein(x, y, score_x, score_y):
        cross = jnp.trace(jax.jacfwd(jax.grad(k, argnums=1), argnums=0)(x, y))
        return (
            k(x, y) * score_x @ score_y
            + score_x @ jax.grad(k, argnums=1)(x, y)
            + score_y @ jax.grad(k, argnums=0)(x, y)
            + cross
        )

    over_columns = jax.vmap(stein, in_axes=(None, 0, None, 0))
    values = jax.vmap(over_columns, in_axes=(0, None, 0, None))(
        particles, particles, scores, scores
    )
    n = len(particles)
    expected = jnp.mean(values)
    if unbiased:
        expected = (jnp.sum(values) - jnp.trace(values)) / (n * (n - 1))
    value = kernel_stein_discrepancy(particles, scores, kernel, unbiased=unbiased)
    assert np.isclose(value, expected, rtol=1e-3, atol=1e-4)


def test_blocks_do_not_show(samples):
    """One row more than a block, and sizes that no block divides."""
    x = Gaussian([0.0, 0.0], [1.0, 1.0]).sample(jax.random.key(0), BLOCK + 1)
    y = Gaussian([0.5, 0.0], [1.0, 2.0]).sample(jax.random.key(1), 2 * BLOCK + 77)
    xx, yy, xy = pair_means(distances, np.float64(x), np.float64(y), True)
    assert np.isclose(energy_distance(x, y, unbiased=True), 2 * xy - xx - yy, atol=2e-5)


@pytest.mark.parametrize("dim", [1, 128, 129, 300])
def test_distances_equal_numpy_in_any_dimension(dim):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(size, dim)).astype(np.float32) for size in (4, 3))
    # Two that almost agree, far from the origin: their distance must not be a rounding.
    x[0] = 100 + y[0]
    y[0] = x[0] + 1e-3
    expected = np.sum((x[:, None].astype(float) - y[None]) ** 2, axis=-1)
    assert np.allclose(squared_distances(jnp.asarray(x), jnp.asarray(y)), expected, rtol=1e-5)


def test_kernel_stein_discrepancy_tells_the_target_from_another():
    density = Gaussian([0.0, 0.0], [[1.0, 0.3], [0.3, 1.0]])
    exact = density.sample(jax.random.key(0), 2000)
    for kernel in (stein.IMQ(1.0), stein.RBF("median"), None):
        values = []
        for particles in (exact, 0.8 * exact, exact + 0.3):
            scores = jax.vmap(jax.grad(density.log_density))(particles)
            values.append(float(kernel_stein_discrepancy(particles, scores, kernel)))
        assert abs(values[0]) < 0.25 * min(values[1:])


@pytest.mark.parametrize("sizes", [(500, 500), (300, 450)])
def test_sliced_wasserstein_of_a_shift_is_the_shift(sizes):
    """W₂² of a shift by v is |v|²; over random directions its mean projection is |v|²/d."""
    x, y = (np.linspace(-1, 1, size)[:, None] * np.array([[1.0, 0.0]]) for size in sizes)
    shift = np.array([0.0, 2.0])
    value = sliced_wasserstein(
        jnp.float32(x), jnp.float32(y + shift), num_projections=4000, key=jax.random.key(0)
    )
    assert np.isclose(value**2, 4 / 2, rtol=0.06)


def test_sliced_wasserstein_in_one_dimension_equals_scipy():
    from scipy.optimize import linear_sum_assignment

    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(60, 1)), 2 * rng.normal(size=(60, 1)) + 1
    cost = (x - y.T) ** 2
    rows, columns = linear_sum_assignment(cost)
    value = sliced_wasserstein(jnp.float32(x), jnp.float32(y), num_projections=3)
    assert np.isclose(value**2, cost[rows, columns].mean(), rtol=1e-4)


def test_a_reference_measures_as_the_plain_functions_do(samples):
    x, y = (jnp.float32(side) for side in samples)
    for bandwidth in (1.0, [0.5, 2.0]):
        reference = Reference(y, bandwidth)
        assert np.isclose(reference.mmd_squared(x), mmd_squared(x, y, bandwidth), atol=1e-6)
        assert np.isclose(reference.energy_distance(x), energy_distance(x, y), atol=1e-6)


def test_kolmogorov_smirnov_equals_scipy(samples):
    from scipy.stats import kstest, norm

    values = samples[0][:, 0]
    expected = kstest(values, norm(scale=1.5).cdf).statistic
    value = kolmogorov_smirnov(
        jnp.float32(values), lambda x: jax.scipy.stats.norm.cdf(x, scale=1.5)
    )
    assert np.isclose(value, expected, atol=1e-5)


def test_mixed_and_integer_types_are_brought_together():
    x, y = np.arange(12).reshape(6, 2), np.linspace(0, 5, 10).reshape(5, 2)
    with jax.enable_x64(True):
        expected = energy_distance(jnp.asarray(x, jnp.float64), jnp.asarray(y))
        mixed = energy_distance(jnp.asarray(x, jnp.float32), jnp.asarray(y))
        assert mixed.dtype == jnp.float64
        assert np.isclose(mixed, expected)
    assert np.isclose(energy_distance(jnp.asarray(x, jnp.float32), jnp.float32(y)), expected)


def test_equal_samples_are_at_distance_zero(samples):
    x = jnp.float32(samples[0])
    assert np.isclose(energy_distance(x, x), 0.0, atol=1e-5)
    assert np.isclose(mmd_squared(x, x, unbiased=False), 0.0, atol=1e-5)
    assert np.isclose(sliced_wasserstein(x, x), 0.0, atol=1e-5)
