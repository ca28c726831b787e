"""Base densities of a transport: the interface, and the standard normal."""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


@runtime_checkable
class BaseDensity(Protocol):
    """Interface of a base density, which the densities of `nvgd.densities` provide."""

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        ...

    def log_density(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """Normalised log density."""
        ...

    def sample(self, key: PRNGKeyArray, num_draws: int) -> Float[Array, "n d"]:
        """Independent draws."""
        ...


class StandardNormal(eqx.Module):
    """N(0, I)."""

    dim: int = eqx.field(static=True)

    def log_density(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """−½|x|² − ½d log 2π."""
        return -0.5 * (x @ x + self.dim * jnp.log(2 * jnp.pi))

    def sample(self, key: PRNGKeyArray, num_draws: int) -> Float[Array, "n d"]:
        """Independent draws."""
        return jax.random.normal(key, (num_draws, self.dim))
