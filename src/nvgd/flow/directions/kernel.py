"""SVGD: the direction of steepest descent of the KL divergence in a kernel's function space."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd._support.devices import against_all
from nvgd._support.errors import check_kind, plain
from nvgd._support.pairs import squared_distances
from nvgd.flow.directions.base import (
    AbstractDirection,
    Capabilities,
    Fit,
    WitnessField,
    check_pairs,
    norm_squared,
)
from nvgd.stein.kernels import RBF, AbstractKernel
from nvgd.stein.witnesses import Witness

# In single precision a matrix of this size takes 16 MB and fits in the processor's cache.
PAIRS_AT_A_TIME = 4_000_000


class _KernelWitness(eqx.Module):
    kernel: AbstractKernel
    bandwidth: Float[Array, ""]
    particles: Float[Array, "n d"]
    scores: Float[Array, "n d"]
    factor: float | Float[Array, ""] = 1.0

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        distances = squared_distances(x[None], self.particles)[0]
        values, slopes, _ = self.kernel.derivatives(distances, self.bandwidth)
        terms = values[:, None] * self.scores - 2 * slopes[:, None] * (x - self.particles)
        return self.factor * jnp.mean(terms, axis=0)


class Kernel(AbstractDirection[None]):
    """Stein variational gradient descent (Liu and Wang, 2016).

        φ(x) = (1/n) Σⱼ k(xⱼ, x) ∇log p(xⱼ) + ∇_{xⱼ} k(xⱼ, x)

    Arguments:
        kernel: k; `RBF` with the median heuristic by default.
        rescale: whether to multiply φ by SD(φ)/‖φ‖², the factor that maximises the regularised
            Stein discrepancy. The paper compares NVGD with this variant, since the length of φ is
            otherwise arbitrary.

    Examples:
        >>> direction = nvgd.directions.Kernel(nvgd.stein.IMQ(1.0))
        >>> flow = nvgd.ParticleFlow(nvgd.coordinates.Identity(), direction, nvgd.movers.Euler(0.1))
    """

    kernel: AbstractKernel = RBF()
    rescale: bool = eqx.field(default=False, converter=plain)

    def __check_init__(self):
        check_kind("kernel", self.kernel, AbstractKernel, "RBF()")

    def init(self, particles, *, key):
        """No state; checks that there are at least two particles."""
        del key
        check_pairs(self, particles)

    def witness(self, particles: Float[Array, "n d"], scores: Float[Array, "n d"]) -> Witness:
        """φ as a function of any position."""
        return _KernelWitness(self.kernel, self.kernel.bandwidth_for(particles), particles, scores)

    @property
    def capabilities(self):
        """φ is a field, defined at every position."""
        return Capabilities(has_field=True)

    def fit(self, particles, scores, state, *, view, key):
        """φ at the particles and as a field, with its leave-one-out Stein discrepancy."""
        del state, view, key
        num_particles, dim = particles.shape
        bandwidth = self.kernel.bandwidth_for(particles)
        # Only differences of positions matter; centring reduces cancellation in products.
        centred = particles - jnp.mean(particles, axis=0)
        aligned = jnp.sum(centred * scores, axis=-1)

        def sums(
            positions: Float[Array, "m d"], others: tuple[Array, Array, Array]
        ) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
            particles, scores, aligned = others
            distances = squared_distances(positions, particles)
            values, slopes, curvatures = self.kernel.derivatives(distances, bandwidth)
            attraction = values @ scores
            repulsion = -2 * (jnp.sum(slopes, axis=1)[:, None] * positions - slopes @ particles)
            # div φ(xᵢ) = (1/n) Σⱼ ∇ₓk·∇log p(xⱼ) + tr ∇ₓ∇_{xⱼ}k, with ∇ₓk = 2κ′(xᵢ − xⱼ).
            traces = -2 * dim * slopes - 4 * distances * curvatures
            divergence = jnp.sum(2 * slopes * (positions @ scores.T - aligned) + traces, axis=1)
            return attraction + repulsion, divergence

        def in_blocks(
            positions: Float[Array, "m d"], others: tuple[Array, Array, Array]
        ) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
            """The sums at all positions, in blocks that bound the size of the pair matrices."""
            if len(positions) * len(others[0]) <= PAIRS_AT_A_TIME:
                return sums(positions, others)
            return jax.lax.map(
                lambda x: jax.tree.map(lambda leaf: leaf[0], sums(x[None], others)),
                positions,
                batch_size=max(PAIRS_AT_A_TIME // len(others[0]), 1),
            )

        velocities, divergence = jax.tree.map(
            lambda total: total / num_particles,
            against_all(in_blocks, centred, (centred, scores, aligned)),
        )

        # Without a particle's own term, φ is evaluated at a particle that it was not built from.
        own_value, own_slope, _ = self.kernel.derivatives(jnp.zeros_like(bandwidth), bandwidth)
        others = num_particles - 1
        held_out = (num_particles * velocities - own_value * scores) / others
        held_out_divergence = (num_particles * divergence + 2 * dim * own_slope) / others
        overlap = jnp.mean(jnp.sum(held_out * scores, axis=-1) + held_out_divergence)
        size = jnp.mean(norm_squared(held_out))

        factor = jnp.ones((), velocities.dtype)
        if self.rescale:
            discrepancy = jnp.mean(jnp.sum(velocities * scores, axis=-1) + divergence)
            square = jnp.mean(norm_squared(velocities))
            factor, velocities = discrepancy / square, velocities * discrepancy / square
        witness = _KernelWitness(self.kernel, bandwidth, particles, scores, factor)
        diagnostics = {
            "stein_discrepancy": 0.5 * overlap * jnp.abs(overlap) / size,
            "bandwidth": bandwidth,
        }
        return Fit(velocities, WitnessField(witness), None, diagnostics)
