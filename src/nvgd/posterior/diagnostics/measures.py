"""What scores say about particles: identities that hold under p, and how far they are from it.

Everything is measured in standardised coordinates, u = T⁻¹(x − μ) with scores s = Tᵀ∇log p, so that
one is the size of the particles' own spread whatever the model's units are. Errors are those of
independent draws: an ensemble that is spread more evenly is told apart from them by nothing here.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nvgd._support.compilation import compiled
from nvgd.stein.kernels import IMQ, stein_kernel

# Particles that pairwise measures look at, at most: their cost is quadratic.
MAX_PAIRED = 500
# Bootstrap replicates of the kernelised discrepancy under "these are draws of p".
NUM_BOOTSTRAP = 500
# Whitening needs this many particles a dimension; coordinates are scaled one by one otherwise.
PARTICLES_PER_DIMENSION = 4
NUM_FOLDS = 5
# Share of extreme terms on which no significance may rest.
TRIMMED = 0.02


class StandardisedSample(NamedTuple):
    """Particles and scores in standardised coordinates, as float64."""

    positions: Float[np.ndarray, "n d"]
    scores: Float[np.ndarray, "n d"]
    is_whitened: bool
    """Whether the coordinates are principal directions, or the model's own, scaled."""


class Identities(NamedTuple):
    """Estimates of an identity, one a coordinate or direction, with standard errors."""

    values: Float[np.ndarray, " k"]
    errors: Float[np.ndarray, " k"]
    significances: Float[np.ndarray, " k"]
    """Standard errors between the estimate and what it should be, with its sign."""


def standardise(
    particles: Float[np.ndarray, "n d"], scores: Float[np.ndarray, "n d"]
) -> StandardisedSample:
    """u with mean zero and unit covariance, or unit variances if particles are too few for that."""
    particles, scores = np.asarray(particles, np.float64), np.asarray(scores, np.float64)
    num_particles, dim = particles.shape
    centred = particles - particles.mean(axis=0)
    deviation = np.maximum(centred.std(axis=0), np.finfo(np.float32).tiny)
    positions, scores = centred / deviation, scores * deviation
    if num_particles < PARTICLES_PER_DIMENSION * dim:
        return StandardisedSample(positions, scores, False)
    variances, directions = np.linalg.eigh(positions.T @ positions / num_particles)
    lengths = np.sqrt(np.maximum(variances, 1e-12 * variances.max()))
    return StandardisedSample(positions @ directions / lengths, scores @ directions * lengths, True)


def mean_scores(sample: StandardisedSample) -> Identities:
    """E[∇log p] = 0 in every coordinate: not so if the particles lie beside the target."""
    return _judged(sample.scores, 0.0)


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

    Found and judged on the same particles, the narrowest would look too narrow even for exact
    draws; so they are also found on all folds but one and judged on that one. That alone would not
    do either: particles that balance each other, as those of a flow do, are narrow in a fold where
    they are wide in the others. What counts is the milder of both. Empty with too few particles.
    """
    num, dim = particles.shape
    if dim < 2 or num < 2 * PARTICLES_PER_DIMENSION * dim:
        return Identities(*np.empty((3, 0)))
    scale = np.maximum(particles.std(axis=0), np.finfo(np.float32).tiny)
    positions, scores = (particles - particles.mean(axis=0)) / scale, scores * scale

    def products(found_on: np.ndarray, judged_on: np.ndarray) -> np.ndarray:
        _, directions = np.linalg.eigh(np.cov(positions[found_on].T))
        directions = directions[:, ::-1]
        return (positions[judged_on] @ directions) * -(scores[judged_on] @ directions)

    held_out = np.empty((num, dim))
    for fold in range(NUM_FOLDS):
        held = np.arange(num) % NUM_FOLDS == fold
        held_out[held] = products(~held, held)
    everyone = np.ones(num, bool)
    return _milder(_ratios(products(everyone, everyone)), _ratios(held_out))


def overall_ratio(sample: StandardisedSample) -> Identities:
    """−E[(x − μ)·∇log p]/d = 1."""
    return _ratios(np.mean(sample.positions * -sample.scores, axis=1, keepdims=True))


def _milder(first: Identities, second: Identities) -> Identities:
    """Of each identity the one that is less significant; of no significance if they disagree."""
    is_first = np.abs(first.significances) < np.abs(second.significances)
    values, errors, significance = (
        np.where(is_first, mine, other) for mine, other in zip(first, second, strict=True)
    )
    agree = first.significances * second.significances > 0
    return Identities(values, errors, np.where(agree, significance, 0.0))


def _ratios(products: Float[np.ndarray, "n k"]) -> Identities:
    # The mean was estimated from the same particles.
    return _judged(products * len(products) / (len(products) - 1), 1.0)


def _judged(terms: Float[np.ndarray, "n k"], expected: float) -> Identities:
    """Means of the terms against what they should be.

    On targets with heavy tails a few particles can make a mean look significant: what counts is the
    lesser of two significances, of all terms and without the extreme two per cent.
    """
    extremes_last = np.argsort(np.abs(terms - terms.mean(axis=0)), axis=0)
    num_kept = len(terms) - math.ceil(TRIMMED * len(terms))
    kept = np.take_along_axis(terms, extremes_last[:num_kept], axis=0)
    plain, trimmed = _significances(terms, expected), _significances(kept, expected)
    lesser = np.where(np.abs(plain) < np.abs(trimmed), plain, trimmed)
    return Identities(
        terms.mean(axis=0), _errors(terms), np.where(plain * trimmed > 0, lesser, 0.0)
    )


def _errors(terms: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " k"]:
    return np.maximum(terms.std(axis=0, ddof=1) / math.sqrt(len(terms)), 1e-12)


def _significances(terms: Float[np.ndarray, "n k"], expected: float) -> Float[np.ndarray, " k"]:
    """(mean − expected)/error; for ratios, where the mean is positive, of its logarithm.

    Products are skewed, and a low mean comes with a low estimate of its error: the logarithm with
    the relative error has nearly normal tails on both sides.
    """
    means, errors = terms.mean(axis=0), _errors(terms)
    plain = (means - expected) / errors
    if not expected:
        return plain
    logs = np.log(np.where(means > 0, means, 1.0)) * means / errors
    return np.where(means > 0, logs, plain)


class KernelTest(NamedTuple):
    """Squared kernelised Stein discrepancy beside its level under "these are draws of p"."""

    value: float
    level: float
    """The 99 % quantile of the bootstrap."""
    share_above: float
    """Of the bootstrap: a p-value."""


def kernel_test(sample: StandardisedSample) -> KernelTest:
    """KSD² (IMQ kernel, all pairs of distinct particles) against a wild bootstrap.

    Under p the statistic is a degenerate U-statistic, whose law the products with random signs
    εᵢεⱼ reproduce (Chwialkowski, Strathmann and Gretton, 2016; Liu, Lee and Jordan, 2016).
    """
    stride = -(-len(sample.positions) // MAX_PAIRED)
    positions, scores = sample.positions[::stride], sample.scores[::stride]
    num = len(positions)
    matrix = np.array(_stein_matrix(jnp.asarray(positions), jnp.asarray(scores)), np.float64)
    np.fill_diagonal(matrix, 0.0)
    pairs = num * (num - 1)
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (NUM_BOOTSTRAP, num))
    replicates = np.einsum("bi,bi->b", signs @ matrix, signs) / pairs
    value = float(matrix.sum() / pairs)
    share = (1 + np.sum(replicates >= value)) / (1 + NUM_BOOTSTRAP)
    return KernelTest(value, float(np.quantile(replicates, 0.99)), float(share))


@compiled
def _stein_matrix(positions: Array, scores: Array) -> Array:
    bandwidth = jnp.sqrt(jnp.asarray(positions.shape[1], positions.dtype))
    return stein_kernel(IMQ(1.0), bandwidth, positions, scores, positions, scores)


def num_distinct(sample: StandardisedSample) -> float:
    """n²/Σᵢⱼ exp(−|uᵢ − uⱼ|²/(2h²)) with h = .05√d/n: copies of k points count as k.

    An exact sample in one dimension keeps 96 %, in more dimensions nearly all.
    """
    stride = -(-len(sample.positions) // MAX_PAIRED)
    positions = sample.positions[::stride]
    num, dim = positions.shape
    bandwidth = 0.05 * math.sqrt(dim) / num
    # From differences, a row at a time: products would cancel at this scale.
    similar = sum(
        np.exp(-0.5 * np.sum((positions - row) ** 2, axis=1) / bandwidth**2).sum()
        for row in positions
    )
    return float(num**2 / similar * len(sample.positions) / num)
