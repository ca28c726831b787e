"""In which coordinates a direction sees the particles.

With x = T(u), a direction that works on u and the score there moves x by a preconditioned flow.
"""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class AbstractFrame(eqx.Module):
    """An invertible map x = T(u), fitted to the particles of one step."""

    @abstractmethod
    def express(
        self, particles: Float[Array, "n d"], scores: Float[Array, "n d"]
    ) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
        """u = T⁻¹(x), and the score of the density of u."""

    @abstractmethod
    def restore(self, expressed: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """x = T(u)."""


class AbstractCoordinates(eqx.Module):
    """Chooses a frame from the particles at the start of every step."""

    @abstractmethod
    def fit(self, particles: Float[Array, "n d"]) -> AbstractFrame:
        """The frame for this step."""


class _IdentityFrame(AbstractFrame):
    def express(self, particles, scores):
        return particles, scores

    def restore(self, expressed):
        return expressed


class Identity(AbstractCoordinates):
    """x as it is: the paper's choice."""

    def fit(self, particles):
        """Nothing to fit."""
        del particles
        return _IdentityFrame()


class _DiagonalFrame(AbstractFrame):
    centre: Float[Array, " d"]
    scale: Float[Array, " d"]

    def express(self, particles, scores):
        return (particles - self.centre) / self.scale, scores * self.scale

    def restore(self, expressed):
        return self.centre + self.scale * expressed


class Diagonal(AbstractCoordinates):
    """x = μ + σu with the particles' own means and standard deviations.

    Choose it when coordinates differ in scale: the step size is then in units of each one's
    spread. On funnels it drives particles into the neck; use `Identity` there.
    """

    def fit(self, particles: Float[Array, "n d"]) -> AbstractFrame:
        """Moments of the particles; a coordinate on which they all agree keeps its own scale."""
        deviation = jnp.std(particles, axis=0)
        return _DiagonalFrame(jnp.mean(particles, axis=0), jnp.where(deviation > 0, deviation, 1.0))
