"""Curvatures that can be inverted."""

import numpy as np
from jaxtyping import Float

# Up to this many dimensions the whole Hessian is used, above it its diagonal.
MAX_DENSE_DIMENSION = 300
# A direction along which the density does not fall gets this curvature, a deviation of ten, or
# this share of the largest, where all are small.
LEAST_CURVATURE = 1e-2
LEAST_SHARE = 1e-6


def positive(curvatures: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Absolute values, none of them near zero."""
    sizes = np.abs(curvatures)
    least = min(LEAST_CURVATURE, LEAST_SHARE * sizes.max())
    return np.maximum(sizes, least if least > 0 else LEAST_CURVATURE)


def eigen_decomposed(
    matrix: Float[np.ndarray, "d d"],
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """Positive curvatures and their axes; what is not finite counts as zero."""
    curvatures, axes = np.linalg.eigh(np.nan_to_num(0.5 * (matrix + matrix.T)))
    return positive(curvatures), axes
