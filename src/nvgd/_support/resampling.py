"""Systematic resampling."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int


def systematic(
    weights: Float[jax.Array | np.ndarray, " n"],
    num_draws: int,
    offset: float | Float[jax.Array, ""],
) -> Int[jax.Array | np.ndarray, " m"]:
    """Indices resampled in proportion to the weights.

    Index i appears `num_draws` · wᵢ/Σw times, rounded up or down.

    Arguments:
        weights: w, non-negative; need not be normalised. A NumPy array gives a NumPy result.
        num_draws: number of indices to draw.
        offset: uniform on [0, 1); the only random number that systematic resampling needs.
    """
    xp = np if isinstance(weights, np.ndarray) else jnp
    ends = num_draws * xp.cumsum(weights) / xp.sum(weights)
    chosen = xp.searchsorted(ends, xp.arange(num_draws) + offset)
    return xp.clip(chosen, 0, len(weights) - 1)
