"""Coordinates for funnels: one direction drives the scale of all others.

A density is a funnel along t if, given t, the other coordinates are normal with a mean linear in t
and standard deviations proportional to exp(aⱼt). Hierarchical models in centred form have this
shape, where t is the log of a group's standard deviation. The coordinates

    w = B⁻¹(x − μ),  t = w₁/τ,  wⱼ = mⱼ + cⱼt + exp(aⱼt) zⱼ

make the density normal in u = (t, z).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd.flow.coordinates.base import AbstractFrame, AffineFrame

# The exponent is constant beyond this many standard deviations of t.
REACH = 5.0


class DriverFrame(AbstractFrame):
    """x = μ + B (τt, m + ct + exp(at) z), as defined in the module docstring.

    Arguments:
        centre, basis, inverse: μ, B and B⁻¹.
        unit: τ.
        offsets, tilts, slopes: m, c and a.
    """

    centre: Float[Array, " d"]
    basis: Float[Array, "d d"]
    inverse: Float[Array, "d d"]
    unit: Float[Array, ""]
    offsets: Float[Array, " e"]
    tilts: Float[Array, " e"]
    slopes: Float[Array, " e"]

    @classmethod
    def without_driver(cls, frame: AffineFrame) -> "DriverFrame":
        """An affine frame in this form."""
        none = jnp.zeros(len(frame.centre) - 1, frame.centre.dtype)
        one = jnp.ones((), frame.centre.dtype)
        return cls(frame.centre, frame.lower, frame.inverse, one, none, none, none)

    @property
    def covector(self) -> Float[Array, " d"]:
        """The gradient of t with respect to x."""
        return self.inverse[0] / self.unit

    def express(self, particles, scores):
        """(t, z), and the score of their density."""
        rotated = (particles - self.centre) @ self.inverse.T
        rotated_scores = scores @ self.basis
        t = rotated[:, 0] / self.unit
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
        rotated = jnp.concatenate([(self.unit * t)[:, None], others], axis=1)
        return self.centre + rotated @ self.basis.T

    def log_volumes(self, expressed):
        """Σⱼ aⱼt."""
        return jnp.sum(self.slopes * bounded_exponent(expressed[:, 0]), axis=1)


def bounded_exponent(t: Float[Array, " n"]) -> Float[Array, "n 1"]:
    """t clipped to ±REACH, as a column."""
    return jnp.clip(t, -REACH, REACH)[:, None]
