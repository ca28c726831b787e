"""Independence proposals: draws from a multivariate Student-t density of unit scale."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

# Degrees of freedom; an even number. Most targets have lighter tails.
JUMP_FREEDOM = 4


def draw(key: PRNGKeyArray, like: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Draws of unit scale, with the shape of `like`."""
    normal_key, width_key = jax.random.split(key)
    normals = jax.random.normal(normal_key, like.shape, like.dtype)
    # A χ² variable with ν degrees of freedom is twice the sum of ν/2 exponential variables.
    halves = jax.random.exponential(width_key, (JUMP_FREEDOM // 2, len(like), 1), like.dtype)
    return normals * jnp.sqrt(JUMP_FREEDOM / (2 * jnp.sum(halves, axis=0)))


def log_densities(positions: Float[Array, "n d"]) -> Float[Array, " n"]:
    """Log density of `draw` at each position, up to a constant."""
    squares = jnp.sum(positions**2, axis=1)
    return -0.5 * (JUMP_FREEDOM + positions.shape[1]) * jnp.log1p(squares / JUMP_FREEDOM)
