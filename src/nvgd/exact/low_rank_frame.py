"""Coordinates for fewer particles than dimensions: principal directions of particles and scores.

Fewer particles than dimensions do not determine a covariance. Together with their scores, they do
determine the directions in which the target differs most from one with independent coordinates. Let
x have unit scale in every coordinate, and s be the scores. For a normal target with precision A,
s = −A(x − μ), and

    Σ C_s Σ = C_x        (C_x, C_s: covariances of positions and scores)

holds for Σ = A⁻¹ on the span of the particles, without sampling error. Its solution, the geometric
mean of C_x and C_s⁻¹, minimises the Fisher divergence between the target and N(μ, Σ). Elsewhere Σ
is a multiple of the identity. After Seyboldt, Carlson and Carpenter, "Preconditioning Hamiltonian
Monte Carlo by minimizing Fisher divergence" (arXiv:2603.18845, 2026).
"""

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from nvgd._support.particle_groups import even_selection
from nvgd._support.robust import median
from nvgd._support.trees import all_finite
from nvgd.flow.coordinates.base import AbstractFrame, ComposedFrame, DiagonalFrame

# Most positions, and most scores, that span the directions; most directions that are used.
MOST_ROWS, MOST_DIRECTIONS = 192, 128
# Ridge of both covariances, as a share of their mean eigenvalue, and number of passes with it.
RIDGE, NUM_PASSES = 0.1, 3
# Smallest eigenvalue, as a share of the largest one, and largest |log| of a scale.
SMALLEST, LARGEST_LOG = 1e-6, 8.0


class LowRankFrame(AbstractFrame):
    """x = T(√λ (I + Q diag(e^a − 1) Qᵀ) u) with orthonormal columns Q."""

    outer: ComposedFrame
    directions: Float[Array, "d r"]
    log_scales: Float[Array, " r"]
    typical_log_scale: Float[Array, ""]

    def express(self, particles, scores):
        """u and the score of its density."""
        values, their_scores = self.outer.express(particles, scores)
        return self._scaled(values, -1.0), self._scaled(their_scores, 1.0)

    def restore(self, expressed):
        """x from u."""
        return self.outer.restore(self._scaled(expressed, 1.0))

    def log_volumes(self, expressed):
        """Those of T."""
        return self.outer.log_volumes(self._scaled(expressed, 1.0))

    def _scaled(self, values: Float[Array, "n d"], power: float) -> Float[Array, "n d"]:
        factors = jnp.expm1(power * self.log_scales)
        change = (values @ self.directions * factors) @ self.directions.T
        return jnp.exp(power * self.typical_log_scale) * (values + change)


def with_principal_directions(
    outer: AbstractFrame, particles: Float[Array, "n d"], scores: Float[Array, "n d"]
) -> LowRankFrame:
    """Improve a frame in which coordinates have about unit scale by principal directions."""
    rows = even_selection(particles, MOST_ROWS), even_selection(scores, MOST_ROWS)
    positions, gradients = outer.express(*rows)
    # Strays do not count.
    weights = _weights(positions) * _weights(gradients)
    positions, gradients = (_centred(each, weights) for each in (positions, gradients))
    scales = (_squares(positions) / _squares(gradients)) ** 0.25
    scaled = ComposedFrame(outer, DiagonalFrame(jnp.zeros_like(scales), scales))
    positions, gradients = positions / scales, gradients * scales
    basis, _ = jnp.linalg.qr(jnp.concatenate([positions, gradients]).T)
    root = _root_of_mean(*((each @ basis).T @ (each @ basis) for each in (positions, gradients)))
    variances, vectors = jnp.linalg.eigh(root @ root.T)
    logs = 0.5 * jnp.log(jnp.maximum(variances, SMALLEST * variances[-1]))
    logs = jnp.clip(logs, -LARGEST_LOG, LARGEST_LOG)
    typical = jnp.median(logs)
    _, chosen = jax.lax.top_k(jnp.abs(logs - typical), min(MOST_DIRECTIONS, len(logs)))
    found = basis @ vectors[:, chosen], logs[chosen] - typical, typical
    # Not finite if all particles are equal, for example.
    is_usable = all_finite(found)
    return LowRankFrame(scaled, *(jnp.where(is_usable, each, 0.0) for each in found))


def _squares(values: Float[Array, "n d"]) -> Float[Array, " d"]:
    return jnp.sum(values**2, axis=0) + jnp.finfo(values.dtype).tiny ** 0.5


def _weights(values: Float[Array, "n d"]) -> Float[Array, " n"]:
    """1, but hardly anything for rows that are many times as long as the median."""
    squares = jnp.sum((values - median(values)) ** 2, axis=1)
    longest = 2 * median(squares) + jnp.finfo(values.dtype).tiny
    return (longest / jnp.maximum(squares, longest)) ** 2


def _centred(values: Float[Array, "n d"], weights: Float[Array, " n"]) -> Float[Array, "n d"]:
    """Deviations from the weighted mean, times the roots of the normalised weights."""
    weights = weights / jnp.sum(weights)
    return jnp.sqrt(weights)[:, None] * (values - weights @ values)


def _root_of_mean(
    covariance: Float[Array, "r r"], information: Float[Array, "r r"]
) -> Float[Array, "r r"]:
    """T, where TTᵀ is the geometric mean of the covariance and the inverse of the information.

    Both may be singular, and are shrunk towards a multiple of TTᵀ and its inverse, as found so far.
    """

    def improve(_: Array | int, found: tuple[Array, Array]) -> tuple[Array, Array]:
        root, inverse = found
        lower = jnp.linalg.cholesky(_with_ridge(root.T @ information @ root))
        variances = _with_ridge(inverse @ covariance @ inverse.T)
        values, vectors = jnp.linalg.eigh(lower.T @ variances @ lower)
        fourth = jnp.maximum(values, SMALLEST * values[-1]) ** 0.25
        change = solve_triangular(lower, vectors * fourth, lower=True, trans=1)
        return root @ change, (vectors / fourth).T @ lower.T @ inverse

    identity = jnp.eye(len(covariance), dtype=covariance.dtype)
    return jax.lax.fori_loop(0, NUM_PASSES, improve, (identity, identity))[0]


def _with_ridge(matrix: Float[Array, "r r"]) -> Float[Array, "r r"]:
    ridge = RIDGE * jnp.mean(jnp.diag(matrix)) + jnp.finfo(matrix.dtype).tiny ** 0.5
    return matrix + ridge * jnp.eye(len(matrix), dtype=matrix.dtype)
