"""The kernelised Stein discrepancy of particles from a target given by its scores."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd._support.errors import InputError, check_kind
from nvgd._support.pairs import pair_mean, paired_samples
from nvgd.stein.kernels import IMQ, AbstractKernel, stein_kernel

# The median heuristic uses at most this many particles.
MEDIAN_SAMPLE = 1000


def kernel_stein_discrepancy(
    particles: Float[Array, "n d"],
    scores: Float[Array, "n d"],
    kernel: AbstractKernel | None = None,
    *,
    unbiased: bool = True,
) -> Float[Array, ""]:
    """Squared kernelised Stein discrepancy of particles from a target given by its scores.

    It needs no draws from the target. The default kernel, `IMQ(1.0)`, detects non-convergence.

    Arguments:
        particles: the sample to assess.
        scores: ∇log p at the particles.
        kernel: `IMQ(1.0)` if omitted. The bandwidth "median" uses at most 1,000 particles.
        unbiased: leave out pairs of a particle with itself; the value can then be negative.

    Examples:
        >>> x = jax.random.normal(jax.random.key(0), (500, 2))
        >>> bool(nvgd.metrics.kernel_stein_discrepancy(x + 1.0, -(x + 1.0)) > 0.1)  # not N(0, I)
        True
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
    # The result depends only on differences of positions; centring them reduces rounding errors.
    points = (particles - jnp.mean(particles, axis=0), scores)

    def pairs(a: tuple[Array, Array], b: tuple[Array, Array]) -> Array:
        return stein_kernel(kernel, bandwidth, *a, *b)

    return pair_mean(pairs, points, points, distinct=unbiased)
