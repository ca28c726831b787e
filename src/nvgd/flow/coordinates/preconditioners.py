"""Affine coordinates: a flow preconditioned by a given or estimated matrix.

With x = μ + Lu, a step ε along the velocity of u moves x by ε LLᵀ times the velocity of x: LLᵀ is
the preconditioner. A flow is affine-invariant if its particles transform by x → Ax whenever target
and initial particles do. This holds if the transformation takes LLᵀ to A LLᵀ Aᵀ.
"""

from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from nvgd._support.errors import InputError, check_callable, check_matrix_fits, positive_matrix
from nvgd.flow.coordinates.base import AbstractCoordinates, AffineFrame
from nvgd.targets.information import Information


class Preconditioned(AbstractCoordinates[None]):
    """A constant preconditioner M = LLᵀ: x ← x + ε M v(x), in the metric of M⁻¹.

    Choose it if scales and correlations are known beforehand, for example from a Laplace
    approximation or an earlier run. It is the only preconditioner that `Metropolis`, `Momentum`,
    `NoiseAware` and `SelfRepulsive` accept.

    Arguments:
        matrix: M, symmetric and positive definite; a vector gives a diagonal matrix.

    Examples:
        >>> flow = nvgd.SVGD(0.1, coordinates=nvgd.coordinates.Preconditioned([1.0, 100.0]))
    """

    lower: Float[Array, "d d"]

    frame_kind: ClassVar[Literal["fixed", "affine", "general"]] = "fixed"

    def __init__(self, matrix: ArrayLike):
        self.lower = jnp.asarray(np.linalg.cholesky(positive_matrix("matrix", matrix)))

    def init(self, particles, *, is_noisy=False):
        """No state; checks the size of the matrix."""
        del is_noisy
        check_matrix_fits("matrix", self.lower, particles.shape[1])

    def fit(self, particles, scores, state):
        """The frame x = Lu."""
        del scores, state
        lower = self.lower.astype(particles.dtype)
        return AffineFrame.of(jnp.zeros_like(particles[0]), lower)


class Whitened(AbstractCoordinates[None]):
    """Coordinates whitened by the particles' mean and covariance: M = Cov(x).

    The flow becomes affine-invariant (Garbuno-Inigo et al., 2020, for Langevin; Wang et al., 2022,
    for learned fields). Choose it for correlated targets that are not far from normal, with
    several particles per dimension. `Adaptive` is the robust alternative: it is insensitive to
    stray particles and unwarps funnels, but is affine-invariant only approximately.

    Examples:
        >>> flow = nvgd.SVGD(0.1, coordinates=nvgd.coordinates.Whitened())
    """

    frame_kind: ClassVar[Literal["fixed", "affine", "general"]] = "affine"

    def init(self, particles, *, is_noisy=False):
        """No state; checks that there are enough particles for a covariance of full rank."""
        del is_noisy
        _check_number(particles, "Whitened")

    def fit(self, particles, scores, state):
        """Mean, and Cholesky factor of the covariance."""
        del scores, state
        mean = jnp.mean(particles, axis=0)
        return AffineFrame.of(mean, jnp.linalg.cholesky(_covariance(particles, particles)))


class Curved(AbstractCoordinates[None]):
    """Preconditioning by the target's mean curvature: M = (E_q[−∇²log p])⁻¹.

    A Newton flow (Detommaso et al., 2018, for SVGD, with one metric for all particles). Without
    `information` the mean curvature is estimated from the scores, by Stein's lemma for normal
    particles, E[∇²log p] = Cov(x)⁻¹Cov(x, ∇log p). This is exact on normal targets and needs no
    further gradients, but is noisy with few particles. Negative eigenvalues of the curvature are
    replaced by their absolute values.

    Choose it over `Whitened` while the particles are still far from the target's shape: its scale
    is the target's from the first step.

    Arguments:
        information: −∇²log p as a function of a position, such as `hessian_information(target)`
            or the Gauss–Newton matrix of `fisher_information(target)`. It costs d gradients per
            particle.

    Examples:
        >>> flow = nvgd.SVGD(0.1, coordinates=nvgd.coordinates.Curved())
    """

    information: Information | None = None

    frame_kind: ClassVar[Literal["fixed", "affine", "general"]] = "affine"

    def __check_init__(self):
        check_callable("information", self.information, optional=True)

    def init(self, particles, *, is_noisy=False):
        """No state; without `information`, checks that there are enough particles."""
        del is_noisy
        if self.information is None:
            _check_number(particles, "Curved without information")

    def fit(self, particles, scores, state):
        """Mean, and Cholesky factor of the inverse curvature."""
        del state
        if self.information is None:
            cross = _covariance(particles, scores)
            curvature = -jnp.linalg.solve(_covariance(particles, particles), cross)
        else:
            curvature = jnp.mean(jax.vmap(self.information)(particles), axis=0)
        values, vectors = jnp.linalg.eigh(0.5 * (curvature + curvature.T))
        sizes = jnp.abs(values)
        sizes = jnp.maximum(sizes, jnp.finfo(sizes.dtype).eps * jnp.max(sizes))
        lower = jnp.linalg.cholesky((vectors / sizes) @ vectors.T)
        return AffineFrame.of(jnp.mean(particles, axis=0), lower)

    def extra_gradients(self, num_particles, dim):
        """One matrix of second derivatives costs d gradients."""
        return 0 if self.information is None else num_particles * dim


def _covariance(x: Float[Array, "n d"], y: Float[Array, "n d"]) -> Float[Array, "d d"]:
    return (x - jnp.mean(x, axis=0)).T @ (y - jnp.mean(y, axis=0)) / len(x)


def _check_number(particles: Float[Array, "n d"], who: str) -> None:
    num_particles, dim = particles.shape
    if num_particles <= dim:
        raise InputError(
            f"{who} needs a covariance of full rank: num_particles must be more than the "
            f"{dim} dimensions, got {num_particles}; use Diagonal()."
        )
