"""Standardised inputs and targets, and the way back to the user's units."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

# A column's scale is at least this share of its range: standardised values stay below ten, also in
# a column that is constant but for a few rows.
SMALLEST_SHARE_OF_RANGE = 0.1
# A column that varies by less than this share of its values is constant but for rounding.
ROUNDING = 1e-12


class Scaling(eqx.Module):
    """x = centre + remainder + scale · z, for standardised z.

    The remainder is what single precision leaves out of the centre, which counts in columns such as
    years or large identifiers.
    """

    centre: Array
    remainder: Array
    scale: Array

    def __init__(self, centre: ArrayLike, scale: ArrayLike):
        exact = np.asarray(centre, np.float64)
        self.centre, self.scale = jnp.asarray(centre), jnp.asarray(scale)
        self.remainder = jnp.asarray(exact - np.asarray(self.centre, np.float64))

    @classmethod
    def none(cls) -> "Scaling":
        """Values stay as they are."""
        return cls(0.0, 1.0)

    @classmethod
    def of_columns(cls, values: np.ndarray) -> "Scaling":
        """Mean and standard deviation of each column; of all values at once for images."""
        axis = 0 if values.ndim <= 2 else None
        values = values.astype(np.float64)
        low, high = values.min(axis), values.max(axis)
        scale = np.maximum(values.std(axis), SMALLEST_SHARE_OF_RANGE * (high - low))
        is_constant = high - low <= ROUNDING * np.maximum(np.abs(low), np.abs(high))
        # A constant column stays constant: zero.
        return cls(np.where(is_constant, low, values.mean(axis)), np.where(is_constant, 1.0, scale))

    @classmethod
    def of_targets(cls, values: np.ndarray) -> "Scaling":
        """Mean and standard deviation of each column."""
        values = values.astype(np.float64)
        return cls(values.mean(0), values.std(0))

    def standardise(self, values: np.ndarray) -> np.ndarray:
        """z of x, subtracted in double precision so that large offsets do not matter."""
        centre, remainder, scale = (
            np.asarray(part, np.float64) for part in (self.centre, self.remainder, self.scale)
        )
        return ((values - centre - remainder) / scale).astype(jnp.result_type(float))

    def restore(self, values: Array) -> Array:
        """x of z."""
        return self.centre + (self.remainder + self.scale * values)
