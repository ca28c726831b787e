"""Standardised inputs and targets, and the way back to the user's units."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

# A column's scale is at least this share of its range: standardised values stay below ten, also in
# a column that is constant but for a few rows.
SMALLEST_SHARE_OF_RANGE = 0.1


class Scaling(eqx.Module):
    """x = centre + scale · z, for standardised z."""

    centre: Array = eqx.field(converter=jnp.asarray)
    scale: Array = eqx.field(converter=jnp.asarray)

    @classmethod
    def none(cls) -> "Scaling":
        """Values stay as they are."""
        return cls(jnp.zeros(()), jnp.ones(()))

    @classmethod
    def of_columns(cls, values: np.ndarray) -> "Scaling":
        """Mean and standard deviation of each column; of all values at once for images."""
        axis = 0 if values.ndim <= 2 else None
        values = values.astype(np.float64)
        floor = SMALLEST_SHARE_OF_RANGE * (values.max(axis) - values.min(axis))
        scale = np.maximum(values.std(axis), floor)
        # A constant column stays constant: zero.
        return cls(values.mean(axis), np.where(scale > 0, scale, 1.0))

    @classmethod
    def of_targets(cls, values: np.ndarray) -> "Scaling":
        """Mean and standard deviation of each column."""
        values = values.astype(np.float64)
        return cls(values.mean(0), values.std(0))

    def standardise(self, values: np.ndarray) -> np.ndarray:
        """z of x, subtracted in double precision so that large offsets do not matter."""
        centre, scale = np.asarray(self.centre, np.float64), np.asarray(self.scale, np.float64)
        return ((values - centre) / scale).astype(np.dtype(jnp.zeros(()).dtype))

    def restore(self, values: Array) -> Array:
        """x of z."""
        return self.centre + self.scale * values
