"""Functions with mean zero under the target, built from positions and scores.

For any smooth ψ that does not grow too fast, Stein's identity says E[Δψ + ∇ψ·s] = 0, where s is the
score. Linear ψ gives the scores themselves, quadratic ψ their products with positions.
"""

import numpy as np
from jaxtyping import Float

# Standard deviation of a normal distribution in units of the distance between its quartiles.
QUARTILES = 0.7413
# Degrees of freedom of the Student-t weights in the scatter.
DEGREES_OF_FREEDOM = 4.0
# Fewest draws per dimension for a full scatter; with fewer, coordinates are only rescaled.
DRAWS_PER_DIMENSION = 4


def standardise(
    positions: Float[np.ndarray, "m d"], scores: Float[np.ndarray, "m d"]
) -> tuple[Float[np.ndarray, "m d"], Float[np.ndarray, "m d"]]:
    """Positions y = L⁻¹(x − μ) and scores t = Lᵀs in coordinates where both have the same scatter.

    LLᵀ is the geometric mean of the scatter of the positions and the inverse scatter of the scores.
    For a normal target it is the exact covariance, whatever the draws. Rows far from the centre get
    small weights, the same for positions and scores.
    """
    m, dim = positions.shape
    scale = np.sqrt(_spread(positions) / _spread(scores))
    y, t = (positions - np.median(positions, axis=0)) / scale, scores * scale
    if m < DRAWS_PER_DIMENSION * dim:
        return y, t
    squares = np.sum((y / _spread(y)) ** 2, axis=1)
    squares *= dim / max(float(np.median(squares)), 1e-300)
    weights = (DEGREES_OF_FREEDOM + dim) / (DEGREES_OF_FREEDOM + squares)
    try:
        root, inverse_root = _roots(_geometric_mean(_scatter(y, weights), _scatter(t, weights)))
    except np.linalg.LinAlgError:
        return y, t
    return y @ inverse_root, t @ root


def quadratics(
    y: Float[np.ndarray, "m d"], t: Float[np.ndarray, "m d"], *, is_full: bool
) -> Float[np.ndarray, "m p"]:
    """δᵢⱼ·2 + yᵢtⱼ + yⱼtᵢ, from ψ = yᵢyⱼ: for all i ≤ j, or only for i = j."""
    if not is_full:
        return 2 + 2 * y * t
    first, second = np.triu_indices(y.shape[1])
    products = y[:, first] * t[:, second]
    products += y[:, second] * t[:, first]
    products[:, first == second] += 2
    return products


def along(
    directions: Float[np.ndarray, "d k"], y: Float[np.ndarray, "m d"], t: Float[np.ndarray, "m d"]
) -> Float[np.ndarray, "m k"]:
    """|b|² + (b·y)(b·t) for each direction b, from ψ = ½(b·y)²."""
    return np.sum(directions**2, axis=0) + (y @ directions) * (t @ directions)


def _spread(values: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " d"]:
    """Robust standard deviation per column; never zero."""
    lower, upper = np.quantile(values, (0.25, 0.75), axis=0)
    spread, deviation = QUARTILES * (upper - lower), values.std(axis=0)
    spread = np.where(spread > 1e-6 * deviation, spread, deviation)
    return np.where(spread > 0, spread, 1.0)


def _scatter(
    values: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"]
) -> Float[np.ndarray, "d d"]:
    centred = values - np.average(values, axis=0, weights=weights)
    return (weights[:, None] * centred).T @ centred / weights.sum()


def _geometric_mean(
    positions: Float[np.ndarray, "d d"], scores: Float[np.ndarray, "d d"]
) -> Float[np.ndarray, "d d"]:
    """The positive definite G with G · scores · G = positions."""
    root, inverse_root = _roots(scores)
    return inverse_root @ _roots(root @ positions @ root)[0] @ inverse_root


def _roots(matrix: Float[np.ndarray, "d d"]) -> tuple[np.ndarray, np.ndarray]:
    """The symmetric square root of a positive definite matrix, and its inverse."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 1e-12 * values[-1])
    if not values[0] > 0:
        raise np.linalg.LinAlgError("not positive definite")
    roots = np.sqrt(values)
    return (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T
