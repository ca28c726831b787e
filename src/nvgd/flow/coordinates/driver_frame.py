"""Coordinates for funnels: one direction drives the scale of all others.

A density is a funnel along t if, given t, the other coordinates are normal with a mean linear in t
and standard deviations proportional to exp(aⱼt). Hierarchical models in centred form have this
shape, where t is the log of a group's standard deviation. The coordinates

    y = L⁻¹(x − μ),  w = Hᵀy,  t = (w₁ − t₀)/τ,  wⱼ = mⱼ + cⱼt + exp(aⱼt) zⱼ

make the density normal in u = (t, z).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd._support.robust import whiten
from nvgd.flow.coordinates.base import AbstractFrame

# The exponent is constant beyond this many standard deviations of t.
REACH = 5.0


class DriverFrame(AbstractFrame):
    """x = μ + L H (t₀ + τt, m + ct + exp(at) z), as defined in the module docstring.

    Arguments:
        centre, lower: μ and L.
        rotation: H.
        origin, unit: t₀ and τ.
        offsets, tilts, slopes: m, c and a.
    """

    centre: Float[Array, " d"]
    lower: Float[Array, "d d"]
    rotation: Float[Array, "d d"]
    origin: Float[Array, ""]
    unit: Float[Array, ""]
    offsets: Float[Array, " e"]
    tilts: Float[Array, " e"]
    slopes: Float[Array, " e"]

    @classmethod
    def affine(cls, centre: Float[Array, " d"], lower: Float[Array, "d d"]) -> "DriverFrame":
        """The frame x = μ + Lu, without a driver."""
        none = jnp.zeros(len(centre) - 1, centre.dtype)
        zero, one = jnp.zeros((), centre.dtype), jnp.ones((), centre.dtype)
        identity = jnp.eye(len(centre), dtype=centre.dtype)
        return cls(centre, lower, identity, zero, one, none, none, none)

    @property
    def covector(self) -> Float[Array, " d"]:
        """The gradient of t with respect to x."""
        along = self.rotation[:, 0]
        return jax.scipy.linalg.solve_triangular(self.lower.T, along, lower=False) / self.unit

    def express(self, particles, scores):
        """(t, z), and the score of their density."""
        rotated = whiten(self.lower, particles - self.centre) @ self.rotation
        rotated_scores = (scores @ self.lower) @ self.rotation
        t = (rotated[:, 0] - self.origin) / self.unit
        widths = jnp.exp(self.slopes * bounded_exponent(t))
        z = (rotated[:, 1:] - self.offsets - self.tilts * t[:, None]) / widths
        others = rotated_scores[:, 1:]
        # The derivative along t includes that of wⱼ, and Σⱼ aⱼ from the log determinant.
        stretched = jnp.sum(self.slopes * (others * z * widths + 1), axis=1)
        along = self.unit * rotated_scores[:, 0] + others @ self.tilts
        along = along + jnp.where(jnp.abs(t) < REACH, stretched, 0.0)
        return (
            jnp.concatenate([t[:, None], z], axis=1),
            jnp.concatenate([along[:, None], others * widths], axis=1),
        )

    def restore(self, expressed):
        """x from (t, z)."""
        t, z = expressed[:, 0], expressed[:, 1:]
        others = (
            self.offsets + self.tilts * t[:, None] + jnp.exp(self.slopes * bounded_exponent(t)) * z
        )
        rotated = jnp.concatenate([(self.origin + self.unit * t)[:, None], others], axis=1)
        return self.centre + (rotated @ self.rotation.T) @ self.lower.T

    def log_volumes(self, expressed):
        """Σⱼ aⱼt."""
        return jnp.sum(self.slopes * bounded_exponent(expressed[:, 0]), axis=1)


def bounded_exponent(t: Float[Array, " n"]) -> Float[Array, "n 1"]:
    """t clipped to ±REACH, as a column."""
    return jnp.clip(t, -REACH, REACH)[:, None]
