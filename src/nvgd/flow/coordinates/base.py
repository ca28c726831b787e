"""In which coordinates a direction sees the particles.

With x = T(u), a direction that works on u and the score there moves x by a preconditioned flow.
"""

from abc import abstractmethod
from typing import ClassVar, Generic, Literal, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nvgd._support.robust import coordinate_scales, whiten

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

    frame_kind: ClassVar[Literal["fixed", "affine", "general"]]
    """What frames can be expected: one affine frame in every step, whatever the particles are; an
    affine frame x = μ + Lu fitted anew in every step; or any invertible map."""

    @abstractmethod
    def init(self, particles: Float[Array, "n d"], *, is_noisy: bool = False) -> State:
        """What the first fit needs to know.

        Arguments:
            is_noisy: whether the scores will be estimates from minibatches.
        """

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

        Nothing is searched for any more; within a fixed frame the particles are standardised.
        """
        frame, _ = self.fit(particles, scores, state, step=jnp.array(0))
        is_fixed = self.frame_kind == "fixed"
        return _StandardisedFrame.of(frame, particles, scores) if is_fixed else frame

    def extra_gradients(self, num_particles: int, dim: int) -> int:
        """Gradients of the log density that a fit costs."""
        del num_particles, dim
        return 0


class _IdentityFrame(AbstractFrame):
    def express(self, particles, scores):
        return particles, scores

    def restore(self, expressed):
        return expressed


class Identity(AbstractCoordinates[None]):
    """x as it is: the paper's choice."""

    frame_kind: ClassVar[Literal["fixed", "affine", "general"]] = "fixed"

    def init(self, particles, *, is_noisy=False):
        """Nothing to remember."""
        del particles, is_noisy

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


class _StandardisedFrame(AbstractFrame):
    """Within another frame, which is affine, the particles' own medians and deviations."""

    outer: AbstractFrame
    inner: DiagonalFrame

    @classmethod
    def of(
        cls, outer: AbstractFrame, particles: Float[Array, "n d"], scores: Float[Array, "n d"]
    ) -> "_StandardisedFrame":
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

    frame_kind: ClassVar[Literal["fixed", "affine", "general"]] = "affine"

    def init(self, particles, *, is_noisy=False):
        """Nothing to remember."""
        del particles, is_noisy

    def fit(self, particles, scores, state, *, step):
        """Moments of the particles; a coordinate on which they all agree keeps its own scale."""
        del scores, state, step
        deviation = jnp.std(particles, axis=0)
        scale = jnp.where(deviation > 0, deviation, 1.0)
        return DiagonalFrame(jnp.mean(particles, axis=0), scale), None
