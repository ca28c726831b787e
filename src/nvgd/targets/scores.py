"""Log densities and scores of particles."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool


class Scores(NamedTuple):
    """Log density and score ∇log p of every particle."""

    log_densities: Any
    """Shape (n,); JAX or NumPy."""
    scores: Any
    """Shape (n, d)."""

    @property
    def is_finite(self) -> Bool[Array, " n"]:
        """Which particles have a finite log density and score."""
        return jnp.isfinite(self.log_densities) & jnp.all(jnp.isfinite(self.scores), axis=-1)

    def masked(self) -> "Scores":
        """Replace values that are not finite: log density by −∞, score by zero."""
        is_finite = self.is_finite
        return Scores(
            jnp.where(is_finite, self.log_densities, -jnp.inf),
            jnp.where(is_finite[:, None], self.scores, 0.0),
        )
