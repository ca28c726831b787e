"""Location, scale and scatter that a few wild particles cannot spoil."""

import math

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

# Of a normal distribution, the standard deviation is this many median absolute deviations.
DEVIATIONS = 1.4826
# Degrees of freedom of the Student-t distribution whose scatter is fitted.
FREEDOM = 4.0
# The correlations are shrunk by this share, so that the scatter stays invertible.
SHRINKAGE = 0.02
PARTICLES_A_DIMENSION = 1.25


def can_fit_scatter(num_particles: int, dim: int) -> bool:
    """Whether there are enough particles to estimate how their coordinates vary together."""
    return num_particles >= PARTICLES_A_DIMENSION * dim


def median(values: Float[Array, "n ..."]) -> Float[Array, "..."]:
    """The (lower) median along the first axis."""
    return quantile(values, 0.5)


def quantile(values: Float[Array, "n ..."], share: float) -> Float[Array, "..."]:
    """What `share` of the values along the first axis do not exceed, by bisection.

    A sort takes long to compile and is no faster at these sizes. Halved are the whole numbers in
    the values' order, not the range of the values: exact, however far away one of them is.
    """
    enough = math.ceil(share * len(values))
    integer = jnp.dtype(f"int{8 * values.dtype.itemsize}")
    keys = _reordered(jax.lax.bitcast_convert_type(values, integer))

    def halve(_: Array | int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        # Half the sum, rounded down, without its overflow.
        middle = (low & high) + ((low ^ high) >> 1)
        is_enough = jnp.sum(keys <= middle, axis=0) >= enough
        return jnp.where(is_enough, low, middle), jnp.where(is_enough, middle, high)

    # One below the least: it is never enough.
    bounds = jnp.min(keys, axis=0) - 1, jnp.max(keys, axis=0)
    _, found = jax.lax.fori_loop(0, jnp.iinfo(integer).bits, halve, bounds)
    return jax.lax.bitcast_convert_type(_reordered(found), values.dtype)


def _reordered(bits: Int[Array, "..."]) -> Int[Array, "..."]:
    """From the bits of floating-point numbers to whole numbers in their order, and back."""
    return jnp.where(bits < 0, bits ^ jnp.iinfo(bits.dtype).max, bits)


def scale_about_zero(values: Float[Array, "n ..."]) -> Float[Array, "..."]:
    """A standard deviation about zero, from the median of the absolute values; never zero."""
    return DEVIATIONS * median(jnp.abs(values)) + jnp.finfo(values.dtype).tiny ** 0.5


def whiten(lower: Float[Array, "d d"], values: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """L⁻¹v of each row v.

    With the inverse, which is small: a solve with all rows cannot be split over devices.
    """
    inverse = solve_triangular(lower, jnp.eye(len(lower), dtype=lower.dtype), lower=True)
    return values @ inverse.T


def coordinate_scales(
    values: Float[Array, "n d"],
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Median and robust standard deviation of each coordinate; the latter is never zero."""
    centre = median(values)
    scales = DEVIATIONS * median(jnp.abs(values - centre))
    deviations = jnp.std(values, axis=0)
    # More than half of the values agree, or all of them.
    scales = jnp.where(scales > 1e-6 * deviations, scales, deviations)
    return centre, jnp.where(scales > 0, scales, 1.0)


def student_scatter(
    values: Float[Array, "n d"], num_iterations: int
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Centre μ and lower triangular L, LLᵀ the scatter of a multivariate Student-t fit.

    Fixed-point steps of its likelihood equations, from the coordinates' medians and deviations.
    L is scaled so that the median of |L⁻¹(v − μ)|² is that of d squared standard normals.
    """
    dim = values.shape[1]
    middle, scales = coordinate_scales(values)
    standard = (values - middle) / scales

    def weigh(squares: Array) -> Array:
        return (FREEDOM + dim) / (FREEDOM + squares)

    def iterate(_: Array | int, fit: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        weights = weigh(fit[2])
        centre = weights @ standard / jnp.sum(weights)
        lower = cholesky_of_scatter(standard - centre, weights)
        return centre, lower, jnp.sum(whiten(lower, standard - centre) ** 2, axis=1)

    start = jnp.zeros_like(middle), jnp.eye(dim, dtype=values.dtype), jnp.sum(standard**2, axis=1)
    centre, lower, squares = jax.lax.fori_loop(0, num_iterations, iterate, start)
    typical = median(squares)
    # Wilson and Hilferty's approximation of a χ² median. None if most of the values agree.
    excess = jnp.where(typical > 0, typical, dim) / (dim * (1 - 2 / (9 * dim)) ** 3)
    return middle + scales * centre, scales[:, None] * lower * jnp.sqrt(excess)


def cholesky_of_scatter(
    deviations: Float[Array, "n d"], weights: Float[Array, " n"]
) -> Float[Array, "d d"]:
    """The Cholesky factor of the weighted second moments, their correlations a little shrunk."""
    matrix = (weights[:, None] * deviations).T @ deviations / jnp.sum(weights)
    variances = jnp.diag(matrix) + jnp.finfo(matrix.dtype).tiny ** 0.5
    shrunk = (1 - SHRINKAGE) * matrix + (SHRINKAGE + 1e-6) * jnp.diag(variances)
    return jnp.linalg.cholesky(shrunk)
