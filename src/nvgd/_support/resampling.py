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
    """Row numbers drawn in proportion to the weights, each as often as its share, up to one.

    Arguments:
        weights: non-negative, in any unit. A NumPy array gives a NumPy result.
        offset: uniform on [0, 1); the only random number that systematic resampling needs.
    """
    xp = np if isinstance(weights, np.ndarray) else jnp
    ends = num_draws * xp.cumsum(weights) / xp.sum(weights)
    chosen = xp.searchsorted(ends, xp.arange(num_draws) + offset)
    return xp.clip(chosen, 0, len(weights) - 1)
