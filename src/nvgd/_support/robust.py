"""Location, scale and scatter estimates that are robust to outliers."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

from nvgd._support.particle_groups import even_selection

# Standard deviation of a normal distribution in units of its median absolute deviation,
DEVIATIONS = 1.4826
# and of the distance between its quartiles.
QUARTILES = 0.7413
# Mean of log|z| for a standard normal z.
LOG_OF_NORMAL = -0.6352
# Degrees of freedom of the Student-t distribution that is fitted.
DEGREES_OF_FREEDOM = 4.0
# Standard deviation of a normal distribution in units of the scale of that fit.
STUDENT = 1.2034
# Fixed-point iterations of the fit to single coordinates, and number of particles that start it.
NUM_QUICK, FEW_STARTING = 3, 27
# Correlations are shrunk towards zero by this factor, so that the scatter stays invertible.
SHRINKAGE = 0.02
# Sorts are slow, and across devices they move their data: they use at most this many rows.
MOST_SORTED = 512
# Most rows whose numbers fit into the last bits of single-precision values.
MOST_NUMBERED = 1024
# Number of particles whose medians and quartiles start the fit.
NUM_STARTING = 64
# Fewest particles per dimension for an estimate of the full scatter.
PARTICLES_PER_DIMENSION = 1.25


def can_fit_scatter(num_particles: int, dim: int) -> bool:
    """Whether there are enough particles to estimate correlations between coordinates."""
    return num_particles >= PARTICLES_PER_DIMENSION * dim


def median(values: Float[Array, "n ..."], most: int = MOST_SORTED) -> Float[Array, "..."]:
    """The (lower) median along the first axis; of an evenly spaced selection beyond `most` rows."""
    return quantiles(values, 0.5, most=most)[0]


def quantiles(
    values: Float[Array, "n ..."], *shares: float, most: int = MOST_SORTED
) -> Float[Array, "k ..."]:
    """For each share, the smallest value that this share of the first axis does not exceed.

    Among more than `most` rows, those of an evenly spaced selection.
    """
    ordered = sorted_rows(even_selection(values, most))
    return ordered[np.array([max(math.ceil(share * len(ordered)), 1) - 1 for share in shares])]


def sorted_rows(values: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """`jnp.sort` along the first axis.

    On a CPU, XLA sorts integers in a sixth of the time that it takes for floating-point numbers.
    With all bits but the sign flipped for negative numbers, the bits are integers of equal order.
    """
    keys = _sortable(values)
    if keys is None:
        return jnp.sort(values, axis=0)
    return jax.lax.bitcast_convert_type(_flip(jnp.sort(keys, axis=0)), values.dtype)


def order_of_rows(values: Float[Array, "n ..."]) -> Int[Array, "n ..."]:
    """`jnp.argsort` along the first axis, for columns whose values differ by more than rounding.

    The sort is that of `sorted_rows`: up to 1,024 rows, the last bits of every value give way to
    the number of its row. The bits that remain tell values apart that are closer than the ranks of
    a normal sample.
    """
    num = len(values)
    keys = _sortable(values)
    if keys is None or num > MOST_NUMBERED:
        return jnp.argsort(values, axis=0)
    bits = (num - 1).bit_length()
    numbers = jax.lax.broadcasted_iota(keys.dtype, keys.shape, 0)
    return jnp.sort((keys >> bits << bits) | numbers, axis=0) & (2**bits - 1)


def _sortable(values: Float[Array, "n ..."]) -> Int[Array, "n ..."] | None:
    """Integers of the same order, NaN last; None if there are no integers of this size."""
    integer = jnp.int64 if values.dtype == jnp.float64 else jnp.int32
    if values.dtype.itemsize != integer.dtype.itemsize:
        return None
    # NaN of either sign comes last.
    clean = jnp.where(jnp.isnan(values), jnp.nan, values)
    return _flip(jax.lax.bitcast_convert_type(clean, integer))


def _flip(bits: Int[Array, "n ..."]) -> Int[Array, "n ..."]:
    """All bits but the sign flipped for negative numbers; its own inverse."""
    return bits ^ ((bits >> (8 * bits.dtype.itemsize - 1)) & jnp.iinfo(bits.dtype).max)


def sums(values: Float[Array, "n ..."]) -> Float[Array, "..."]:
    """Sums over the first axis, as a product with ones: reductions take longer to compile."""
    return jnp.ones(len(values), values.dtype) @ values


def scale_about_zero(values: Float[Array, "n ..."]) -> Float[Array, "..."]:
    """Robust standard deviation about zero, from the median absolute value; never zero."""
    return DEVIATIONS * median(jnp.abs(values)) + jnp.finfo(values.dtype).tiny ** 0.5


def typical_size(values: Float[Array, "n ..."]) -> Float[Array, "..."]:
    """Robust standard deviation about zero, from the mean of log|v| over v ≠ 0; never zero.

    Faster than `scale_about_zero`, for many values of which a few are wild.
    """
    sizes = jnp.abs(values)
    counts = (sizes > 0).astype(values.dtype)
    logs = jnp.log(jnp.where(sizes > 0, sizes, 1.0))
    means = sums(logs) / jnp.maximum(sums(counts), 1.0)
    return jnp.exp(means - LOG_OF_NORMAL)


def inverse_of(lower: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """L⁻¹ for a lower triangular L.

    Explicit, because a solve with all particles cannot be split over devices.
    """
    return solve_triangular(lower, jnp.eye(len(lower), dtype=lower.dtype), lower=True)


def whiten(lower: Float[Array, "d d"], values: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """L⁻¹v for each row v."""
    return values @ inverse_of(lower).T


def coordinate_scales(
    values: Float[Array, "n d"],
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Median and robust standard deviation per coordinate; the latter is never zero."""
    lower, centre, upper = quantiles(values, 0.25, 0.5, 0.75)
    scales = QUARTILES * (upper - lower)
    deviations = jnp.sqrt(sums((values - sums(values) / len(values)) ** 2) / len(values))
    # The quartiles are equal if more than half of the values are, the standard deviation is zero if
    # all are.
    scales = jnp.where(scales > 1e-6 * deviations, scales, deviations)
    return centre, jnp.where(scales > 0, scales, 1.0)


def quick_coordinate_scales(
    values: Float[Array, "n d"],
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Centre and standard deviation per coordinate of a Student-t fit; the latter is never zero.

    In many dimensions the sorts of `coordinate_scales` take longer than the gradient of a network.
    This takes sums only: fixed-point iterations of the likelihood equations, from medians of three.
    """
    few = even_selection(values, FEW_STARTING)
    centre = _repeated_median(few)
    squares = (DEVIATIONS * _repeated_median(jnp.abs(few - centre))) ** 2
    variances = sums((values - sums(values) / len(values)) ** 2) / len(values)
    # The median deviation is zero if most of the values are equal, the variance if all are.
    squares = jnp.where(squares > 1e-12 * variances, squares, variances)
    squares = jnp.where(squares > 0, squares, 1.0)
    for _ in range(NUM_QUICK):
        weights = 1 / (DEGREES_OF_FREEDOM + (values - centre) ** 2 / squares)
        total = sums(weights)
        centre = sums(weights * values) / total
        # Divided by the sum of the weights, not by n: the same limit, reached sooner.
        found = sums(weights * (values - centre) ** 2) / total
        squares = jnp.where(found > 0, found, squares)
    return centre, STUDENT * jnp.sqrt(squares)


def _repeated_median(values: Float[Array, "n ..."]) -> Float[Array, "..."]:
    """Medians of three rows, of three of these, and so on: robust, and without a sort."""
    while (third := len(values) // 3) > 0:
        a, b, c = (values[i * third : (i + 1) * third] for i in range(3))
        values = jnp.maximum(jnp.minimum(a, b), jnp.minimum(jnp.maximum(a, b), c))
    return values[0]


def student_scatter(
    values: Float[Array, "n d"], num_iterations: int
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Centre μ and lower triangular L of a multivariate Student-t fit with scatter LLᵀ.

    Runs fixed-point iterations of the likelihood equations, starting from the medians and robust
    standard deviations of at most 64 particles' coordinates. L is scaled so that the median of
    |L⁻¹(v − μ)|² is that of a χ² distribution with d degrees of freedom.
    """
    dim = values.shape[1]
    middle, scales = coordinate_scales(even_selection(values, NUM_STARTING))
    standard = (values - middle) / scales

    def weigh(squares: Array) -> Array:
        return (DEGREES_OF_FREEDOM + dim) / (DEGREES_OF_FREEDOM + squares)

    def iterate(_: Array | int, fit: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        weights = weigh(fit[2])
        centre = weights @ standard / jnp.sum(weights)
        lower = cholesky_of_scatter(standard - centre, weights)
        return centre, lower, jnp.sum(whiten(lower, standard - centre) ** 2, axis=1)

    start = jnp.zeros_like(middle), jnp.eye(dim, dtype=values.dtype), jnp.sum(standard**2, axis=1)
    centre, lower, squares = jax.lax.fori_loop(0, num_iterations, iterate, start)
    typical = median(squares)
    # Wilson and Hilferty's approximation of the χ² median. If most values are equal, the median
    # is zero and d takes its place.
    excess = jnp.where(typical > 0, typical, dim) / (dim * (1 - 2 / (9 * dim)) ** 3)
    return middle + scales * centre, scales[:, None] * lower * jnp.sqrt(excess)


def cholesky_of_scatter(
    deviations: Float[Array, "n d"], weights: Float[Array, " n"]
) -> Float[Array, "d d"]:
    """Cholesky factor of the weighted second moments, with slightly shrunk correlations."""
    matrix = (weights[:, None] * deviations).T @ deviations / jnp.sum(weights)
    variances = jnp.diag(matrix) + jnp.finfo(matrix.dtype).tiny ** 0.5
    shrunk = (1 - SHRINKAGE) * matrix + (SHRINKAGE + 1e-6) * jnp.diag(variances)
    return jnp.linalg.cholesky(shrunk)
