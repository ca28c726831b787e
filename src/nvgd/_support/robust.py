"""Location, scale and scatter estimates that are robust to outliers."""

import math

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

# Standard deviation of a normal distribution in units of its median absolute deviation.
DEVIATIONS = 1.4826
# Degrees of freedom of the Student-t distribution that is fitted.
DEGREES_OF_FREEDOM = 4.0
# Correlations are shrunk towards zero by this factor, so that the scatter stays invertible.
SHRINKAGE = 0.02
# Fewest particles per dimension for an estimate of the full scatter.
PARTICLES_PER_DIMENSION = 1.25


def can_fit_scatter(num_particles: int, dim: int) -> bool:
    """Whether there are enough particles to estimate correlations between coordinates."""
    return num_particles >= PARTICLES_PER_DIMENSION * dim


def median(values: Float[Array, "n ..."]) -> Float[Array, "..."]:
    """The (lower) median along the first axis."""
    return quantile(values, 0.5)


def quantile(values: Float[Array, "n ..."], share: float) -> Float[Array, "..."]:
    """The smallest value that at least a fraction `share` of the first axis does not exceed.

    Found by bisection: a sort takes long to compile and is no faster at these sizes. The bisection
    runs over integers in the order of the floating-point values, not over the values themselves,
    so the result is exact even with extreme outliers.
    """
    enough = math.ceil(share * len(values))
    integer = jnp.dtype(f"int{8 * values.dtype.itemsize}")
    keys = _reordered(jax.lax.bitcast_convert_type(values, integer))

    def halve(_: Array | int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        # ⌊(low + high)/2⌋ without overflow.
        middle = (low & high) + ((low ^ high) >> 1)
        is_enough = jnp.sum(keys <= middle, axis=0) >= enough
        return jnp.where(is_enough, low, middle), jnp.where(is_enough, middle, high)

    # The lower bound lies below all keys, so its count is always too small.
    bounds = jnp.min(keys, axis=0) - 1, jnp.max(keys, axis=0)
    _, found = jax.lax.fori_loop(0, jnp.iinfo(integer).bits, halve, bounds)
    return jax.lax.bitcast_convert_type(_reordered(found), values.dtype)


def _reordered(bits: Int[Array, "..."]) -> Int[Array, "..."]:
    """Map the bits of floating-point numbers to integers of the same order; its own inverse."""
    return jnp.where(bits < 0, bits ^ jnp.iinfo(bits.dtype).max, bits)


def scale_about_zero(values: Float[Array, "n ..."]) -> Float[Array, "..."]:
    """Robust standard deviation about zero, from the median absolute value; never zero."""
    return DEVIATIONS * median(jnp.abs(values)) + jnp.finfo(values.dtype).tiny ** 0.5


def whiten(lower: Float[Array, "d d"], values: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """L⁻¹v for each row v.

    L is inverted explicitly, because a solve with all rows cannot be split over devices.
    """
    inverse = solve_triangular(lower, jnp.eye(len(lower), dtype=lower.dtype), lower=True)
    return values @ inverse.T


def coordinate_scales(
    values: Float[Array, "n d"],
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Median and robust standard deviation per coordinate; the latter is never zero."""
    centre = median(values)
    scales = DEVIATIONS * median(jnp.abs(values - centre))
    deviations = jnp.std(values, axis=0)
    # The median absolute deviation is zero if more than half of the values are equal, the standard
    # deviation if all are.
    scales = jnp.where(scales > 1e-6 * deviations, scales, deviations)
    return centre, jnp.where(scales > 0, scales, 1.0)


def student_scatter(
    values: Float[Array, "n d"], num_iterations: int
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Centre μ and lower triangular L of a multivariate Student-t fit with scatter LLᵀ.

    Runs fixed-point iterations of the likelihood equations, starting from the coordinates' medians
    and robust standard deviations. L is scaled so that the median of |L⁻¹(v − μ)|² is that of a χ²
    distribution with d degrees of freedom.
    """
    dim = values.shape[1]
    middle, scales = coordinate_scales(values)
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
