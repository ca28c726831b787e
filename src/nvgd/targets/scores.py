"""Log densities and scores of particles."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np


class Scores(NamedTuple):
    """Log density and score ∇log p of every particle."""

    log_densities: Any
    """Shape (n,); JAX or NumPy."""
    scores: Any
    """Shape (n, d)."""

    @property
    def is_finite(self) -> Any:
        """Which particles have a finite log density and score; shape (n,)."""
        isfinite = self._numpy.isfinite
        return isfinite(self.log_densities) & isfinite(self.scores).all(axis=-1)

    def masked(self) -> "Scores":
        """Replace values that are not finite: log density by −∞, score by zero."""
        is_finite, where = self.is_finite, self._numpy.where
        return Scores(
            where(is_finite, self.log_densities, -np.inf),
            where(is_finite[:, None], self.scores, 0.0),
        )

    @property
    def _numpy(self) -> Any:
        """NumPy for arrays on the host, where JAX would compile a program per operation."""
        return np if isinstance(self.log_densities, np.ndarray) else jnp
