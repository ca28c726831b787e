"""In which coordinates a direction sees the particles.

With x = T(u), a direction that works on u and the score there moves x by a preconditioned flow.
"""

from abc import abstractmethod
from typing import ClassVar, Generic, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nvgd.robust import coordinate_scales, whiten

State = TypeVar("State")


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

    def log_volumes(self, expressed: Float[Array, "n d"]) -> Float[Array, " n"]:
        """log|det ∂T(u)|, up to a constant: none for an affine map."""
        return jnp.zeros_like(expressed[:, 0])


class AbstractCoordinates(eqx.Module, Generic[State]):
    """Chooses a frame from the particles and their scores at the start of every step."""

    is_affine: ClassVar[bool] = False
    """Whether every frame is x = μ + Lu."""

    is_fixed: ClassVar[bool] = False
    """Whether the frame is the same in every step, whatever the particles are."""

    @abstractmethod
    def init(self, particles: Float[Array, "n d"]) -> State:
        """What the first fit needs to know."""

    def init_for_minibatches(self, particles: Float[Array, "n d"]) -> State:
        """The same if the scores will come from minibatches, and so be noisy."""
        return self.init(particles)

    @abstractmethod
    def fit(
        self,
        particles: Float[Array, "n d"],
        scores: Float[Array, "n d"],
        state: State,
        *,
        step: Int[Array, ""],
    ) -> tuple[AbstractFrame, State]:
        """The frame for this step, and the state for the next fit."""

    def settled(
        self, particles: Float[Array, "n d"], scores: Float[Array, "n d"], state: State
    ) -> AbstractFrame:
        """The frame for particles that have arrived, in which they have about unit spread.

        Nothing is looked for any more; within a frame that is given they are standardised.
        """
        frame, _ = self.fit(particles, scores, state, step=jnp.array(0))
        return _Standardised.of(frame, particles, scores) if self.is_fixed else frame

    def extra_gradients(self, num_particles: int, dim: int) -> int:
        """How many gradients of the log density a fit costs."""
        del num_particles, dim
        return 0


class _IdentityFrame(AbstractFrame):
    def express(self, particles, scores):
        return particles, scores

    def restore(self, expressed):
        return expressed


class Identity(AbstractCoordinates[None]):
    """x as it is: the paper's choice."""

    is_affine: ClassVar[bool] = True
    is_fixed: ClassVar[bool] = True

    def init(self, particles):
        """Nothing to remember."""
        del particles

    def fit(self, particles, scores, state, *, step):
        """Nothing to fit."""
        del particles, scores, state, step
        return _IdentityFrame(), None


class AffineFrame(AbstractFrame):
    """x = μ + Lu with a lower triangular L."""

    centre: Float[Array, " d"]
    lower: Float[Array, "d d"]

    def express(self, particles, scores):
        """u and its score Lᵀ∇log p."""
        return whiten(self.lower, particles - self.centre), scores @ self.lower

    def restore(self, expressed):
        """x from u."""
        return self.centre + expressed @ self.lower.T


class DiagonalFrame(AbstractFrame):
    """x = μ + σu."""

    centre: Float[Array, " d"]
    scale: Float[Array, " d"]

    def express(self, particles, scores):
        """u and its score σ∇log p."""
        return (particles - self.centre) / self.scale, scores * self.scale

    def restore(self, expressed):
        """x from u."""
        return self.centre + self.scale * expressed


class _Standardised(AbstractFrame):
    """Within another frame, which is affine, the particles' own medians and deviations."""

    outer: AbstractFrame
    inner: DiagonalFrame

    @classmethod
    def of(
        cls, outer: AbstractFrame, particles: Float[Array, "n d"], scores: Float[Array, "n d"]
    ) -> "_Standardised":
        expressed, _ = outer.express(particles, scores)
        return cls(outer, DiagonalFrame(*coordinate_scales(expressed)))

    def express(self, particles, scores):
        return self.inner.express(*self.outer.express(particles, scores))

    def restore(self, expressed):
        return self.outer.restore(self.inner.restore(expressed))


class Diagonal(AbstractCoordinates[None]):
    """x = μ + σu with the particles' own means and standard deviations.

    Choose it when coordinates differ in scale: the step size is then in units of each one's
    spread. On funnels it drives particles into the neck; use `Adaptive` there.
    """

    is_affine: ClassVar[bool] = True

    def init(self, particles):
        """Nothing to remember."""
        del particles

    def fit(self, particles, scores, state, *, step):
        """Moments of the particles; a coordinate on which they all agree keeps its own scale."""
        del scores, state, step
        deviation = jnp.std(particles, axis=0)
        scale = jnp.where(deviation > 0, deviation, 1.0)
        return DiagonalFrame(jnp.mean(particles, axis=0), scale), None
