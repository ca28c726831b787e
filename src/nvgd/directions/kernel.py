"""SVGD: the steepest direction inside a kernel's function space stands in for the flow."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd.directions.base import AbstractDirection, Diagnostics, norm_squared
from nvgd.errors import check_kind, plain
from nvgd.kernels import RBF, AbstractKernel, squared_distances
from nvgd.witnesses import Witness


class KernelDirection(AbstractDirection[None]):
    """Stein variational gradient descent (Liu and Wang, 2016).

        φ(x) = (1/n) Σⱼ k(xⱼ, x) ∇log p(xⱼ) + ∇_{xⱼ} k(xⱼ, x)

    Arguments:
        kernel: RBF with the median heuristic by default.
        rescale: multiply φ by SD(φ)/‖φ‖², the factor that maximises the regularised Stein
            discrepancy. The paper compares NVGD with this variant, since the length of φ is
            otherwise arbitrary.
    """

    kernel: AbstractKernel = RBF()
    rescale: bool = eqx.field(default=False, converter=plain)

    noise_share: ClassVar[float] = 0.0
    min_particles: ClassVar[int] = 2

    def __check_init__(self):
        check_kind("kernel", self.kernel, AbstractKernel, "RBF()")

    def init(self, particles: Float[Array, "n d"], *, key: PRNGKeyArray) -> None:
        """Nothing to remember."""
        del key
        self.check_particles(particles)

    def witness(self, particles: Float[Array, "n d"], scores: Float[Array, "n d"]) -> Witness:
        """φ as a function of any position, also one that is not a particle."""
        bandwidth = self.kernel.bandwidth_for(particles)

        def field(x: Float[Array, " d"]) -> Float[Array, " d"]:
            distances = squared_distances(x[None], particles)[0]
            values, slopes, _ = self.kernel.derivatives(distances, bandwidth)
            terms = values[:, None] * scores - 2 * slopes[:, None] * (x - particles)
            return jnp.mean(terms, axis=0)

        return field

    def __call__(
        self,
        particles: Float[Array, "n d"],
        scores: Float[Array, "n d"],
        state: None,
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "n d"], None, Diagnostics]:
        """φ at the particles; the discrepancy is that of φ built from the other particles only."""
        del state, key
        num_particles, dim = particles.shape
        bandwidth = self.kernel.bandwidth_for(particles)
        # Only differences of positions count: centred, their products lose fewer digits.
        particles = particles - jnp.mean(particles, axis=0)
        distances = squared_distances(particles, particles)
        values, slopes, curvatures = self.kernel.derivatives(distances, bandwidth)

        attraction = values @ scores
        repulsion = -2 * (jnp.sum(slopes, axis=1)[:, None] * particles - slopes @ particles)
        field = (attraction + repulsion) / num_particles
        # div φ(xᵢ) = (1/n) Σⱼ ∇ₓk·∇log p(xⱼ) + tr ∇ₓ∇_{xⱼ}k, with ∇ₓk = 2κ′(xᵢ − xⱼ).
        aligned = particles @ scores.T - jnp.sum(particles * scores, axis=-1)
        traces = -2 * dim * slopes - 4 * distances * curvatures
        divergence = jnp.mean(2 * slopes * aligned + traces, axis=1)

        # A particle's own term is the diagonal; without it φ is held out from where it is tested.
        others = num_particles - 1
        own_value, own_trace = jnp.diagonal(values), jnp.diagonal(traces)
        held_out = (num_particles * field - own_value[:, None] * scores) / others
        held_out_divergence = (num_particles * divergence - own_trace) / others
        overlap = jnp.mean(jnp.sum(held_out * scores, axis=-1) + held_out_divergence)
        size = jnp.mean(norm_squared(held_out))

        if self.rescale:
            discrepancy = jnp.mean(jnp.sum(field * scores, axis=-1) + divergence)
            field = field * discrepancy / jnp.mean(norm_squared(field))
        return (
            field,
            None,
            {
                "stein_discrepancy": 0.5 * overlap * jnp.abs(overlap) / size,
                "bandwidth": bandwidth,
            },
        )
