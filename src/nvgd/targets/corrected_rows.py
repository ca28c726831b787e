"""A target on a subsample of the rows that stands for all of them near an anchor.

With θ̂ a position among the particles (the anchor), ℓᵢ the log likelihood of row i, and S a random
subsample of the rows with weights wᵢ,

    log p(θ) ≈ log prior(θ) + Σ_S wᵢ(ℓᵢ(θ) − ℓᵢ(θ̂)) + b·u + ½uᵀCu,   θ = θ̂ + Lu

where b and C make gradient and Hessian of the likelihood at θ̂ those of all rows, and LLᵀ is the
scatter of the particles.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from nvgd.targets.positions import Position
from nvgd.targets.target import Target

# Chains stay within √d + MARGIN standard deviations of the anchor.
MARGIN = 8.0
# The margin stops chains if more than MOST_PRESSING of the particles are beyond the first half of
# it; particles with scatter LLᵀ are not.
MOST_PRESSING = 0.05
# With a larger error, in nats, chains would be far from the target.
LARGEST_ERROR = 2.0


class Row(NamedTuple):
    """A row of the subsample, or all of them."""

    row: PyTree
    weight: Any
    """JAX or NumPy; of all rows, shape (m,)."""
    at_anchor: Any
    """Log likelihood of the row at the anchor, of the same shape."""


class WeightedLikelihood(eqx.Module):
    """wᵢ(ℓᵢ(θ) − ℓᵢ(θ̂))."""

    log_likelihood: Any

    def __call__(self, position: Position, datum: Row) -> Array:
        """Value for one row, or for several if the likelihood is vectorised."""
        return datum.weight * (self.log_likelihood(position, datum.row) - datum.at_anchor)


class CorrectedPrior(eqx.Module):
    """log prior(θ) + b·u + ½uᵀCu − 2 max(0, |u| − R)².

    Far from the anchor, the expansion means nothing and may grow without bound. The last term keeps
    chains within R = √d + 8; particles with scatter LLᵀ lie far inside.
    """

    log_prior: Any
    anchor: Float[Array, " d"]
    inverse_root: Float[Array, "d d"]
    linear: Float[Array, " d"]
    quadratic: Float[Array, "d d"]

    def __call__(self, position: Position) -> Array:
        """Value at one position."""
        u = self.inverse_root @ (ravel_pytree(position)[0] - self.anchor)
        distance = jnp.sqrt(u @ u + 1e-12)
        outside = jnp.maximum(0.0, distance - len(u) ** 0.5 - MARGIN)
        expansion = u @ (self.linear + 0.5 * self.quadratic @ u)
        return self.log_prior(position) + expansion - 2 * outside**2


class Subsample(NamedTuple):
    """Rows that stand for all rows near an anchor, as arrays that a checkpoint can hold."""

    rows: Row
    anchor: Float[Array, " d"]
    inverse_root: Float[Array, "d d"]
    linear: Float[Array, " d"]
    quadratic: Float[Array, "d d"]
    error: Float[Array, ""]
    """Standard deviation of its error in log p over the particles that it was drawn for."""

    @property
    def is_usable(self) -> bool:
        """Whether chains over its log density would be near the target."""
        return float(self.error) < LARGEST_ERROR

    def confines(self, particles: Float[Array, "n d"]) -> bool:
        """Whether particles press against the margin: chains would go on beyond it."""
        offsets = np.asarray(particles, np.float64) - np.asarray(self.anchor, np.float64)
        distances = np.linalg.norm(offsets @ np.asarray(self.inverse_root, np.float64).T, axis=1)
        return float(np.mean(distances > len(self.anchor) ** 0.5 + MARGIN / 2)) > MOST_PRESSING

    def target(self, whole: Target) -> Target:
        """The target without minibatches that stands for `whole`."""
        return whole.on_rows(
            CorrectedPrior(whole.log_prior, *self[1:-1]),
            WeightedLikelihood(whole.log_likelihood),
            self.rows,
        )

    @classmethod
    def restored(cls, whole: Target, arrays: Mapping[str, np.ndarray]) -> "Subsample":
        """A subsample from its leaves, in the order of their numbers."""
        assert whole.data is not None
        like = cls(Row(whole.data.example, 0, 0), 0, 0, 0, 0, 0)  # pyright: ignore[reportArgumentType]
        leaves = [jnp.asarray(arrays[str(i)]) for i in range(len(arrays))]
        return jax.tree.unflatten(jax.tree.structure(like), leaves)
