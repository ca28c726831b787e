"""Projection: a witness in a low-dimensional subspace, a normal repulsion in its complement."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from nvgd._support.errors import InputError, check_count, plain
from nvgd.flow.aim import AbstractField
from nvgd.flow.directions.base import AbstractDirection, Fit
from nvgd.flow.directions.wrapper import AbstractWrapper

# Power iterations per step, starting from the subspace of the previous step.
ITERATIONS = 3


class ProjectedState(NamedTuple):
    """State of the inner direction, and an orthonormal basis of the subspace."""

    direction: PyTree
    basis: Float[Array, "d r"]


class _ProjectedField(AbstractField):
    field: AbstractField
    basis: Float[Array, "d r"]
    mean: Float[Array, " d"]
    precisions: Float[Array, " d"]

    def __call__(self, positions, scores):
        inside = self.field(positions @ self.basis, scores @ self.basis)
        return self.combine(inside, positions, scores)

    def combine(self, inside: Array, positions: Array, scores: Array) -> Array:
        """Velocities inside the subspace plus the normal flow in its complement."""
        apart = _outside(self.basis, positions - self.mean)
        return inside @ self.basis.T + _outside(self.basis, scores + self.precisions * apart)


class Projected(AbstractWrapper[ProjectedState]):
    """Applies a direction f in a subspace of r dimensions, and a normal flow in its complement.

        v(x) = V f(Vᵀx, Vᵀ∇log p) + (I − VVᵀ)[∇log p + Λ(I − VVᵀ)(x − x̄)]

    Λ holds the precisions of the particles' coordinates in the complement: Λ(x − x̄) is −∇log q
    of normal particles there. The columns of V are the leading eigenvectors of the gradient
    covariance

        C = E_q[g gᵀ],   g = ∇log p minus its least-squares line in each coordinate

    Directions that are independent and normal, such as those of a prior, do not contribute to C.
    Witness or kernel then work in r dimensions, regardless of d. After projected SVGD (Chen and
    Ghattas, 2020), where g is the gradient of the log likelihood.

    Choose it in hundreds of dimensions or more, when data inform few of them. Intended for
    `Diagonal` coordinates, in which all coordinates have the same spread.

    Arguments:
        direction: f, `Neural` or `Kernel`, without noise, which the mover would add to the
            complement as well. For noise, put `LangevinFraction` around `Projected`.
        rank: r.

    Examples:
        >>> direction = nvgd.directions.Projected(nvgd.directions.Neural(), rank=3)
    """

    direction: AbstractDirection
    rank: int = eqx.field(default=5, converter=plain)

    def __check_init__(self):
        self.check_inner(field_for="outside of its subspace")
        check_count("rank", self.rank)
        inner, capabilities = type(self.direction).__name__, self.direction.capabilities
        if capabilities.noise_share:
            raise InputError(
                f"noise for {inner} would be added outside of the subspace too: put "
                "LangevinFraction around Projected, not inside."
            )
        if capabilities.evaluates_target:
            raise InputError(
                f"{inner} asks the target for scores of its own, and inside of Projected it knows "
                "positions in the subspace only: give Projected a Neural() or Kernel()."
            )

    def init(self, particles, *, key):
        """A random subspace, and the state of the inner direction in it."""
        dim = particles.shape[1]
        if self.rank >= dim:
            raise InputError(
                f"rank must be below the number of dimensions, {dim}, got {self.rank}."
            )
        basis_key, inner_key = jax.random.split(key)
        basis = _orthonormal(jax.random.normal(basis_key, (dim, self.rank), particles.dtype))
        return ProjectedState(self.direction.init(particles @ basis, key=inner_key), basis)

    def fit(self, particles, scores, state, *, view, key):
        """Update the subspace, fit the inner direction in it, and add the complement."""
        del view
        deviations = particles - jnp.mean(particles, axis=0)
        centred = scores - jnp.mean(scores, axis=0)
        slopes = jnp.sum(deviations * centred, axis=0) / _positive(jnp.sum(deviations**2, axis=0))
        remainder = scores - jnp.mean(scores, axis=0) - slopes * deviations
        basis = state.basis
        for _ in range(ITERATIONS):
            basis = _orthonormal(remainder.T @ (remainder @ basis), nearest_to=basis)

        inner = self.direction.fit(
            particles @ basis, scores @ basis, state.direction, view=None, key=key
        )
        variances = jnp.mean(_outside(basis, deviations) ** 2, axis=0)
        assert inner.field is not None
        field = _ProjectedField(
            inner.field, basis, jnp.mean(particles, axis=0), 1 / _positive(variances)
        )
        velocities = field.combine(inner.velocities, particles, scores)
        share = jnp.sum((remainder @ basis) ** 2) / _positive(jnp.sum(remainder**2))
        return Fit(
            velocities,
            field,
            ProjectedState(inner.state, basis),
            {**inner.diagnostics, "captured_share": share},
        )


def _outside(basis: Float[Array, "d r"], vectors: Float[Array, "n d"]) -> Float[Array, "n d"]:
    return vectors - (vectors @ basis) @ basis.T


def _orthonormal(
    columns: Float[Array, "d r"], nearest_to: Float[Array, "d r"] | None = None
) -> Float[Array, "d r"]:
    """Orthonormal basis of the columns' span; if `nearest_to` is given, the nearest to it."""
    basis, _ = jnp.linalg.qr(columns)
    if nearest_to is None:
        return basis
    left, _, right = jnp.linalg.svd(basis.T @ nearest_to)
    return basis @ (left @ right)


def _positive(values: Array) -> Array:
    return jnp.maximum(values, jnp.finfo(values.dtype).tiny ** 0.5)
