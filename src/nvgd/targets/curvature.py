"""Positive curvatures, for use as precisions."""

import numpy as np
from jaxtyping import Float

# Up to this dimension the full Hessian is used, above it only its diagonal.
MAX_DENSE_DIMENSION = 300
# Curvatures are at least the smaller of LEAST_CURVATURE, a standard deviation of 10, and
# LEAST_SHARE times the largest.
LEAST_CURVATURE = 1e-2
LEAST_SHARE = 1e-6


def positive(curvatures: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Absolute values of the curvatures, bounded away from zero."""
    sizes = np.abs(curvatures)
    least = min(LEAST_CURVATURE, LEAST_SHARE * sizes.max())
    return np.maximum(sizes, least if least > 0 else LEAST_CURVATURE)


def eigen_decomposed(
    matrix: Float[np.ndarray, "d d"],
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """Positive curvatures and eigenvectors of a symmetrised matrix; NaN entries count as zero."""
    curvatures, axes = np.linalg.eigh(np.nan_to_num(0.5 * (matrix + matrix.T)))
    return positive(curvatures), axes
