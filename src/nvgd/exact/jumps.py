"""Independence proposals: draws from a multivariate Student-t density of unit scale."""

import jax.numpy as jnp
from jaxtyping import Array, Float

# Degrees of freedom; an even number. Most targets have lighter tails.
JUMP_FREEDOM = 4


def draw(normals: Float[Array, "n d"], uniforms: Float[Array, "n k"]) -> Float[Array, "n d"]:
    """Draws of unit scale, from normal and from uniform numbers."""
    # A χ² variable with ν degrees of freedom is twice the sum of ν/2 exponential variables.
    return normals * jnp.sqrt(
        JUMP_FREEDOM / (-2 * jnp.sum(jnp.log(uniforms), axis=1, keepdims=True))
    )


def log_densities(positions: Float[Array, "n d"]) -> Float[Array, " n"]:
    """Log density of `draw` at each position, up to a constant."""
    squares = jnp.sum(positions**2, axis=1)
    return -0.5 * (JUMP_FREEDOM + positions.shape[1]) * jnp.log1p(squares / JUMP_FREEDOM)
