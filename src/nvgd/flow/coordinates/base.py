"""The interface of coordinates x = T(u), with identity and diagonal coordinates.

A direction that moves u along the score of the density of u moves x by a preconditioned flow.
"""

from abc import abstractmethod
from typing import Any, ClassVar, Generic, Literal, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd._support.robust import coordinate_scales, inverse_of

State = TypeVar("State")


class AbstractFrame(eqx.Module):
    """An invertible map x = T(u), fitted to the particles of one step.

    Examples:
        >>> particles = jax.random.normal(jax.random.key(0), (50, 2))
        >>> coordinates = nvgd.coordinates.Whitened()
        >>> frame = coordinates.fit(particles, -particles, coordinates.init(particles))
        >>> expressed, scores = frame.express(particles, -particles)
        >>> bool(jnp.allclose(frame.restore(expressed), particles, atol=1e-5))
        True
    """

    @abstractmethod
    def express(
        self, particles: Float[Array, "n d"], scores: Float[Array, "n d"]
    ) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
        """u = T⁻¹(x), and the score of the density of u."""

    @abstractmethod
    def restore(self, expressed: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """x = T(u)."""

    def log_volumes(self, expressed: Float[Array, "n d"]) -> Float[Array, " n"]:
        """log|det ∂T(u)|, up to a constant; zero for an affine map."""
        return jnp.zeros_like(expressed[:, 0])


class AbstractCoordinates(eqx.Module, Generic[State]):
    """Fits a frame to the particles and their scores at the start of every step.

    Examples:
        >>> isinstance(nvgd.coordinates.Whitened(), nvgd.coordinates.AbstractCoordinates)
        True
    """

    frame_kind: ClassVar[Literal["fixed", "affine", "general"]]
    """Kind of the frames: "fixed" is one affine frame for all steps, independent of the particles;
    "affine" is x = μ + Lu, refitted in every step; "general" is any invertible map."""

    @abstractmethod
    def init(self, particles: Float[Array, "n d"], *, is_noisy: bool = False) -> State:
        """State for the first fit.

        Arguments:
            is_noisy: whether the scores are estimated from minibatches.
        """

    @abstractmethod
    def fit(
        self, particles: Float[Array, "n d"], scores: Float[Array, "n d"], state: State
    ) -> AbstractFrame:
        """The frame for this step."""

    def is_due(self, state: State, step: Any) -> Any:
        """Whether to update the state by `search` before the fit of this step; never by default.

        Arguments:
            step: number of steps taken, or an array of such numbers.
        """
        del state, step
        return False

    def search(
        self, particles: Float[Array, "n d"], scores: Float[Array, "n d"], state: State
    ) -> State:
        """The state for the next fits, from work that is too costly for every step."""
        del particles, scores
        return state

    def settled(
        self, particles: Float[Array, "n d"], scores: Float[Array, "n d"], state: State
    ) -> AbstractFrame:
        """The frame for particles near the target, in which they have about unit spread.

        Within a fixed frame the particles are standardised.
        """
        frame = self.fit(particles, scores, state)
        is_fixed = self.frame_kind == "fixed"
        return ComposedFrame.standardised(frame, particles, scores) if is_fixed else frame

    def extra_gradients(self, num_particles: int, dim: int) -> int:
        """Number of gradients of the log density that a fit evaluates."""
        del num_particles, dim
        return 0


class _IdentityFrame(AbstractFrame):
    def express(self, particles, scores):
        return particles, scores

    def restore(self, expressed):
        return expressed


class Identity(AbstractCoordinates[None]):
    """The original coordinates x, as in the paper.

    Examples:
        >>> flow = nvgd.NVGD(coordinates=nvgd.coordinates.Identity())
    """

    frame_kind: ClassVar[Literal["fixed", "affine", "general"]] = "fixed"

    def init(self, particles, *, is_noisy=False):
        """No state."""
        del particles, is_noisy

    def fit(self, particles, scores, state):
        """The identity."""
        del particles, scores, state
        return _IdentityFrame()


class AffineFrame(AbstractFrame):
    """x = μ + Lu with a lower triangular L and its inverse."""

    centre: Float[Array, " d"]
    lower: Float[Array, "d d"]
    inverse: Float[Array, "d d"]

    @classmethod
    def of(cls, centre: Float[Array, " d"], lower: Float[Array, "d d"]) -> "AffineFrame":
        """The frame x = μ + Lu."""
        return cls(centre, lower, inverse_of(lower))

    def express(self, particles, scores):
        """u and its score Lᵀ∇log p."""
        return (particles - self.centre) @ self.inverse.T, scores @ self.lower

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


class ComposedFrame(AbstractFrame):
    """x = T(A(u)) with an affine A, which gives the particles in T's coordinates unit spread."""

    outer: AbstractFrame
    inner: AffineFrame | DiagonalFrame

    @classmethod
    def standardised(
        cls, outer: AbstractFrame, particles: Float[Array, "n d"], scores: Float[Array, "n d"]
    ) -> "ComposedFrame":
        """With the medians and robust deviations of the particles."""
        expressed, _ = outer.express(particles, scores)
        return cls(outer, DiagonalFrame(*coordinate_scales(expressed)))

    def express(self, particles, scores):
        """u and the score of its density."""
        return self.inner.express(*self.outer.express(particles, scores))

    def restore(self, expressed):
        """x from u."""
        return self.outer.restore(self.inner.restore(expressed))

    def log_volumes(self, expressed):
        """Those of T."""
        return self.outer.log_volumes(self.inner.restore(expressed))


class Diagonal(AbstractCoordinates[None]):
    """x = μ + σu with the means and standard deviations of the particles.

    Choose it when coordinates differ in scale: the step size is then in units of each coordinate's
    spread. On funnels it drives particles into the neck; use `Adaptive` there.

    Examples:
        >>> flow = nvgd.SVGD(0.1, coordinates=nvgd.coordinates.Diagonal())
    """

    frame_kind: ClassVar[Literal["fixed", "affine", "general"]] = "affine"

    def init(self, particles, *, is_noisy=False):
        """No state."""
        del particles, is_noisy

    def fit(self, particles, scores, state):
        """Means and standard deviations; a coordinate without spread has σ = 1."""
        del scores, state
        deviation = jnp.std(particles, axis=0)
        scale = jnp.where(deviation > 0, deviation, 1.0)
        return DiagonalFrame(jnp.mean(particles, axis=0), scale)
