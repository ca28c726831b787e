"""The kernelised Stein discrepancy: how far particles are from a target known by its scores."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd._support.errors import InputError, check_kind
from nvgd._support.pairs import pair_mean, paired_samples
from nvgd.stein.kernels import IMQ, AbstractKernel, stein_kernel

# The median heuristic looks at no more particles than these.
MEDIAN_SAMPLE = 1000


def kernel_stein_discrepancy(
    particles: Float[Array, "n d"],
    scores: Float[Array, "n d"],
    kernel: AbstractKernel | None = None,
    *,
    unbiased: bool = True,
) -> Float[Array, ""]:
    """Squared kernelised Stein discrepancy of particles from the target with these scores.

    It needs no draws of the target. The default kernel, `IMQ(1.0)`, detects non-convergence;
    "median" takes its median over a thousand of the particles at the most.

    Arguments:
        scores: ∇log p at the particles.
        unbiased: leave out pairs of a particle with itself; the value can then be negative.
    """
    particles, scores = paired_samples(particles, scores, minimum=2 if unbiased else 1)
    if particles.shape != scores.shape:
        raise InputError(
            f"scores must have the particles' shape {particles.shape}, got {scores.shape}."
        )
    kernel = IMQ(1.0) if kernel is None else kernel
    check_kind("kernel", kernel, AbstractKernel, "IMQ(1.0)")
    return _kernel_stein_discrepancy(particles, scores, kernel, unbiased)


@eqx.filter_jit
def _kernel_stein_discrepancy(
    particles: Array, scores: Array, kernel: AbstractKernel, unbiased: bool
) -> Array:
    stride = max(len(particles) // MEDIAN_SAMPLE, 1)
    bandwidth = kernel.bandwidth_for(particles[::stride][:MEDIAN_SAMPLE])
    # Only differences of positions count: centred, their products lose fewer digits.
    points = (particles - jnp.mean(particles, axis=0), scores)

    def pairs(a: tuple[Array, Array], b: tuple[Array, Array]) -> Array:
        return stein_kernel(kernel, bandwidth, *a, *b)

    return pair_mean(pairs, points, points, distinct=unbiased)
