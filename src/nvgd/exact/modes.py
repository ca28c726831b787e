"""Shifts: jumps between separate modes that are known by a normal approximation at their peaks.

A particle at x belongs to the mode i whose normal density is the largest there. A shift takes it to
another mode j, chosen at random, at the same place relative to the mode's normal approximation,

    x' = cⱼ + RⱼRᵢ⁻¹(x − cᵢ),   accepted with probability min(1, p(x')|Rⱼ|/p(x)|Rᵢ|)

if x' belongs to j (Tjelmeland and Hegstad, "Mode jumping proposals in MCMC", 2001). Between normal
modes the acceptance depends on their weights only, in any number of dimensions.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Modes(NamedTuple):
    """Normal approximations of two or more modes."""

    centres: Float[Array, "k d"]
    roots: Float[Array, "k d d"]
    """Square roots Rₖ of the covariances."""
    inverses: Float[Array, "k d d"]
    log_volumes: Float[Array, " k"]
    """Log |Rₖ|."""
    log_masses: Float[Array, " k"]

    def shift(
        self, particles: Float[Array, "n d"], uniforms: Float[Array, " n"]
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """Ends of shifts, and the log factor |Rⱼ|/|Rᵢ| of their acceptance; −∞ outside of j."""
        num_modes = len(self.centres)
        inside, logs = self._inside(particles)
        own = jnp.argmax(logs, axis=1)
        further = 1 + jnp.minimum((uniforms * (num_modes - 1)).astype(int), num_modes - 2)
        other, rows = (own + further) % num_modes, jnp.arange(len(particles))
        there = self.centres + jnp.einsum("kij,nj->nki", self.roots, inside[rows, own])
        there = there[rows, other]
        arrives = jnp.argmax(self._inside(there)[1], axis=1) == other
        ratio = self.log_volumes[other] - self.log_volumes[own]
        return there, jnp.where(arrives, ratio, -jnp.inf)

    def _inside(
        self, positions: Float[Array, "n d"]
    ) -> tuple[Float[Array, "n k d"], Float[Array, "n k"]]:
        """Positions relative to each mode, and the log of each mode's density there."""
        offsets = positions[:, None] - self.centres
        inside = jnp.einsum("kij,nkj->nki", self.inverses, offsets)
        squares = jnp.sum(inside**2, axis=2)
        return inside, self.log_masses - self.log_volumes - 0.5 * squares
