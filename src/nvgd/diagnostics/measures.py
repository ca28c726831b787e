"""What scores say about particles: identities that hold under p, and how far they are from it.

Everything is measured in standardised coordinates, u = T⁻¹(x − μ) with scores s = Tᵀ∇log p, so that
one is the size of the particles' own spread whatever the model's units are. Errors are those of
independent draws: an ensemble that is spread more evenly is told apart from them by nothing here.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nvgd.kernels import IMQ, stein_kernel

# Particles that pairwise measures look at, at most: their cost is quadratic.
MAX_PAIRED = 500
# Bootstrap replicates of the kernelised discrepancy under "these are draws of p".
NUM_BOOTSTRAP = 500
# Whitening needs this many particles a dimension; coordinates are scaled one by one otherwise.
PARTICLES_PER_DIMENSION = 4
NUM_FOLDS = 5


class View(NamedTuple):
    """Particles and scores in standardised coordinates, as float64."""

    positions: Float[np.ndarray, "n d"]
    scores: Float[np.ndarray, "n d"]
    is_whitened: bool
    """Whether the coordinates are principal directions, or the model's own, scaled."""


class Identities(NamedTuple):
    """Estimates of an identity, one a coordinate or direction, with standard errors."""

    values: Float[np.ndarray, " k"]
    errors: Float[np.ndarray, " k"]


def standardise(particles: Float[np.ndarray, "n d"], scores: Float[np.ndarray, "n d"]) -> View:
    """u with mean zero and unit covariance, or unit variances if particles are too few for that."""
    particles, scores = np.asarray(particles, np.float64), np.asarray(scores, np.float64)
    num_particles, dim = particles.shape
    centred = particles - particles.mean(axis=0)
    deviation = np.maximum(centred.std(axis=0), np.finfo(np.float32).tiny)
    positions, scores = centred / deviation, scores * deviation
    if num_particles < PARTICLES_PER_DIMENSION * dim:
        return View(positions, scores, False)
    variances, directions = np.linalg.eigh(positions.T @ positions / num_particles)
    lengths = np.sqrt(np.maximum(variances, 1e-12 * variances.max()))
    return View(positions @ directions / lengths, scores @ directions * lengths, True)


def mean_scores(view: View) -> Identities:
    """E[∇log p] = 0 in every coordinate: not so if the particles lie beside the target."""
    num = len(view.scores)
    return Identities(view.scores.mean(axis=0), view.scores.std(axis=0, ddof=1) / math.sqrt(num))


def variance_ratios(
    particles: Float[np.ndarray, "n d"], scores: Float[np.ndarray, "n d"]
) -> Identities:
    """−E[(xⱼ − μⱼ)∂ⱼlog p] = 1 in every coordinate j: below one, the variance is too small.

    For a normal target it is the particles' variance over the target's.
    """
    return _ratios((particles - particles.mean(axis=0)) * -scores)


def principal_ratios(
    particles: Float[np.ndarray, "n d"], scores: Float[np.ndarray, "n d"]
) -> Identities:
    """The same along principal directions of the particles, widest first.

    Directions come from all folds but one and are judged on that one: found on the same particles,
    the narrowest would look too narrow even for exact draws. Empty with too few particles.
    """
    num, dim = particles.shape
    if dim < 2 or num < 2 * PARTICLES_PER_DIMENSION * dim:
        return Identities(np.empty(0), np.empty(0))
    scale = np.maximum(particles.std(axis=0), np.finfo(np.float32).tiny)
    positions, scores = (particles - particles.mean(axis=0)) / scale, scores * scale
    products = np.empty((num, dim))
    for fold in range(NUM_FOLDS):
        held = np.arange(num) % NUM_FOLDS == fold
        _, directions = np.linalg.eigh(np.cov(positions[~held].T))
        directions = directions[:, ::-1]
        products[held] = (positions[held] @ directions) * -(scores[held] @ directions)
    return _ratios(products)


def overall_ratio(view: View) -> tuple[float, float]:
    """−E[(x − μ)·∇log p]/d with its standard error."""
    found = _ratios(np.mean(view.positions * -view.scores, axis=1, keepdims=True))
    return float(found.values[0]), float(found.errors[0])


def _ratios(products: Float[np.ndarray, "n k"]) -> Identities:
    num = len(products)
    # The mean was estimated from the same particles.
    values = products.mean(axis=0) * num / (num - 1)
    return Identities(values, products.std(axis=0, ddof=1) / math.sqrt(num))


def significances(found: Identities) -> Float[np.ndarray, " k"]:
    """How many standard errors ratios lie from one, on the scale of their logarithm.

    Products are skewed, and a low mean comes with a low estimate of its error: the logarithm with
    the relative error has nearly normal tails on both sides.
    """
    errors = np.maximum(found.errors, 1e-12)
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(found.values) * found.values / errors
    return np.where(found.values > 0, logs, (found.values - 1) / errors)


class KernelTest(NamedTuple):
    """Squared kernelised Stein discrepancy beside its level under "these are draws of p"."""

    value: float
    level: float
    """The 99 % quantile of the bootstrap."""
    share_above: float
    """Of the bootstrap: a p-value."""


def kernel_test(view: View) -> KernelTest:
    """KSD² (IMQ kernel, all pairs of distinct particles) against a wild bootstrap.

    Under p the statistic is a degenerate U-statistic, whose law the products with random signs
    εᵢεⱼ reproduce (Chwialkowski, Strathmann and Gretton, 2016; Liu, Lee and Jordan, 2016).
    """
    stride = -(-len(view.positions) // MAX_PAIRED)
    positions, scores = view.positions[::stride], view.scores[::stride]
    num, dim = positions.shape
    matrix = np.array(_stein_matrix(jnp.asarray(positions), jnp.asarray(scores)), np.float64)
    np.fill_diagonal(matrix, 0.0)
    pairs = num * (num - 1)
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (NUM_BOOTSTRAP, num))
    replicates = np.einsum("bi,bi->b", signs @ matrix, signs) / pairs
    value = float(matrix.sum() / pairs)
    share = (1 + np.sum(replicates >= value)) / (1 + NUM_BOOTSTRAP)
    return KernelTest(value, float(np.quantile(replicates, 0.99)), float(share))


@eqx.filter_jit
def _stein_matrix(positions: Array, scores: Array) -> Array:
    bandwidth = jnp.sqrt(jnp.asarray(positions.shape[1], positions.dtype))
    return stein_kernel(IMQ(1.0), bandwidth, positions, scores, positions, scores)


def num_distinct(view: View) -> float:
    """n²/Σᵢⱼ exp(−|uᵢ − uⱼ|²/(2h²)) with h = .05√d/n: copies of k points count as k.

    An exact sample in one dimension keeps 96 %, in more dimensions nearly all.
    """
    stride = -(-len(view.positions) // MAX_PAIRED)
    positions = view.positions[::stride]
    num, dim = positions.shape
    bandwidth = 0.05 * math.sqrt(dim) / num
    # From differences, a row at a time: products would cancel at this scale.
    similar = sum(
        np.exp(-0.5 * np.sum((positions - row) ** 2, axis=1) / bandwidth**2).sum()
        for row in positions
    )
    return float(num**2 / similar * len(view.positions) / num)
