"""Distances between two samples.

Use several of them to assess a sampler: MMD with a narrow kernel is insensitive to far tails, while
the energy distance is not.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd._support.errors import InputError, check_count, check_positive
from nvgd._support.pairs import distances, pair_mean, paired_samples, squared_distances


def mmd_squared(
    x: Float[Array, "n d"],
    y: Float[Array, "m d"],
    bandwidth: float | Sequence[float] = 1.0,
    *,
    unbiased: bool = True,
) -> Float[Array, ""]:
    """Squared maximum mean discrepancy, the paper's measure.

        MMD² = E k(x, x′) − 2 E k(x, y) + E k(y, y′),    k(x, y) = exp(−|x − y|²/(2h²))

    Arguments:
        x, y: the two samples.
        bandwidth: h; for several values, the mean of their kernels is used.
        unbiased: leave out pairs of a particle with itself; the value can then be negative.

    Examples:
        >>> draws = jax.random.normal(jax.random.key(0), (500, 2))
        >>> bool(nvgd.metrics.mmd_squared(draws + 1.0, draws) > 0.1)
        True
    """
    x, y = paired_samples(x, y, minimum=2 if unbiased else 1)
    return _contrast(_gaussian_kernel(bandwidth, x.dtype), x, y, unbiased)


def energy_distance(
    x: Float[Array, "n d"], y: Float[Array, "m d"], *, unbiased: bool = False
) -> Float[Array, ""]:
    """Energy distance 2 E|x − y| − E|x − x′| − E|y − y′|.

    It is zero only for equal distributions, and is sensitive to differences at all scales.

    Arguments:
        x, y: the two samples.
        unbiased: leave out pairs of a particle with itself; the value can then be negative.

    Examples:
        >>> draws = jax.random.normal(jax.random.key(0), (500, 2))
        >>> near = nvgd.metrics.energy_distance(draws + 0.1, draws)
        >>> bool(near < nvgd.metrics.energy_distance(draws + 1.0, draws))
        True
    """
    x, y = paired_samples(x, y, minimum=2 if unbiased else 1)
    return -_contrast(distances, x, y, unbiased)


class Reference(eqx.Module):
    """Reference draws for repeated distance computations, such as the metrics of `sample`.

        reference = Reference(funnel.sample(key, 2000))
        nvgd.sample(..., metrics={"MMD²": reference.mmd_squared})

    The means over pairs of reference draws are most of the work and are computed only once.

    Arguments:
        draws: exact draws, or draws of a trusted sampler.
        bandwidth: h of `mmd_squared`, one or several.

    Examples:
        >>> draws = jax.random.normal(jax.random.key(0), (500, 2))
        >>> reference = nvgd.metrics.Reference(draws)
        >>> bool(reference.energy_distance(draws + 1.0) > reference.energy_distance(draws))
        True
    """

    draws: Float[Array, "m d"]
    bandwidth: float | tuple[float, ...]
    own_kernel: Float[Array, ""]
    own_distance: Float[Array, ""]

    def __init__(self, draws: Float[Array, "m d"], bandwidth: float | Sequence[float] = 1.0):
        draws, _ = paired_samples(draws, draws, minimum=2)
        self.draws = draws
        self.bandwidth = tuple(bandwidth) if isinstance(bandwidth, Sequence) else bandwidth
        kernel = _gaussian_kernel(self.bandwidth, draws.dtype)
        self.own_kernel = _mean_of_pairs(kernel, draws, distinct=True)
        self.own_distance = _mean_of_pairs(distances, draws, distinct=False)

    def mmd_squared(self, particles: Float[Array, "n d"]) -> Float[Array, ""]:
        """Unbiased MMD² between the particles and the reference draws; see `mmd_squared`."""
        particles, draws = paired_samples(particles, self.draws, minimum=2)
        kernel = _gaussian_kernel(self.bandwidth, draws.dtype)
        return _contrast(kernel, particles, draws, True, self.own_kernel)

    def energy_distance(self, particles: Float[Array, "n d"]) -> Float[Array, ""]:
        """Energy distance between the particles and the reference draws; see `energy_distance`."""
        particles, draws = paired_samples(particles, self.draws, minimum=1)
        return -_contrast(distances, particles, draws, False, self.own_distance)


class _GaussianKernel(eqx.Module):
    bandwidths: Float[Array, " k"]

    def __call__(self, x: Array, y: Array) -> Array:
        squares = squared_distances(x, y)
        values = [jnp.exp(-0.5 * squares / h**2) for h in self.bandwidths]
        return sum(values[1:], start=values[0]) / len(values)


def _gaussian_kernel(bandwidth: float | Sequence[float], dtype: jnp.dtype) -> _GaussianKernel:
    try:
        bandwidths = np.atleast_1d(np.asarray(bandwidth, float))
    except (TypeError, ValueError):
        bandwidths = np.empty(0)
    if bandwidths.ndim != 1 or not bandwidths.size:
        raise InputError(f"bandwidth must be a number or a list of numbers, got {bandwidth!r}.")
    for value in bandwidths:
        check_positive("bandwidth", value)
    return _GaussianKernel(jnp.asarray(bandwidths, dtype))


@eqx.filter_jit
def _contrast(
    function: Callable[[Array, Array], Array],
    x: Array,
    y: Array,
    unbiased: bool,
    own: Array | None = None,
) -> Array:
    """E f(x, x′) − 2 E f(x, y) + E f(y, y′), where `own` is the last term if it is known."""
    own = pair_mean(function, y, y, distinct=unbiased) if own is None else own
    between = pair_mean(function, x, y)
    return pair_mean(function, x, x, distinct=unbiased) - 2 * between + own


@eqx.filter_jit
def _mean_of_pairs(function: Callable[[Array, Array], Array], y: Array, distinct: bool) -> Array:
    return pair_mean(function, y, y, distinct=distinct)


def sliced_wasserstein(
    x: Float[Array, "n d"],
    y: Float[Array, "m d"],
    *,
    num_projections: int = 100,
    key: PRNGKeyArray | None = None,
) -> Float[Array, ""]:
    """Sliced Wasserstein-2 distance: the root of the mean W₂² of one-dimensional projections.

    Arguments:
        x, y: the two samples.
        num_projections: number of random directions.
        key: random key for the directions; fixed if omitted.

    Examples:
        >>> draws = jax.random.normal(jax.random.key(0), (500, 1))
        >>> round(float(nvgd.metrics.sliced_wasserstein(draws + 1.0, draws)), 2)
        1.0
    """
    x, y = paired_samples(x, y, minimum=1)
    check_count("num_projections", num_projections)
    key = jax.random.key(0) if key is None else key
    return _sliced_wasserstein(x, y, num_projections, key)


@eqx.filter_jit
def _sliced_wasserstein(x: Array, y: Array, num_projections: int, key: PRNGKeyArray) -> Array:
    n, m = len(x), len(y)
    # Both quantile functions are constant between neighbouring levels i/n and j/m.
    levels = np.union1d(np.arange(n + 1) / n, np.arange(m + 1) / m)
    middles = (levels[1:] + levels[:-1]) / 2
    x_index, y_index = (np.minimum((middles * k).astype(int), k - 1) for k in (n, m))
    widths = jnp.asarray(np.diff(levels), x.dtype)

    def squared_distance(direction: Array) -> Array:
        x_sorted, y_sorted = jnp.sort(x @ direction), jnp.sort(y @ direction)
        return jnp.sum(widths * (x_sorted[x_index] - y_sorted[y_index]) ** 2)

    directions = jax.random.normal(key, (num_projections, x.shape[1]), x.dtype)
    directions = directions / jnp.linalg.norm(directions, axis=-1, keepdims=True)
    return jnp.sqrt(jnp.mean(jax.lax.map(squared_distance, directions)))


def kolmogorov_smirnov(
    values: Float[Array, " n"], distribution: Callable[[Array], Array]
) -> Float[Array, ""]:
    """Kolmogorov–Smirnov distance between `values` and a known distribution.

        kolmogorov_smirnov(particles[:, 0], lambda x: jax.scipy.stats.norm.cdf(x, scale=3.0))

    Arguments:
        values: a one-dimensional sample.
        distribution: the cumulative distribution function.

    Examples:
        >>> normal = jax.random.normal(jax.random.key(0), (1000,))
        >>> bool(nvgd.metrics.kolmogorov_smirnov(normal, jax.scipy.stats.norm.cdf) < 0.05)
        True
    """
    values = jnp.asarray(values)
    if values.ndim != 1 or not len(values):
        raise InputError(f"values must be one-dimensional and not empty, got {values.shape}.")
    n = len(values)
    heights = distribution(jnp.sort(values))
    steps = jnp.arange(n + 1, dtype=values.dtype) / n
    return jnp.maximum(jnp.max(steps[1:] - heights), jnp.max(heights - steps[:-1]))
