"""Measures from scores: identities that hold under p, and the particles' deviations from them.

All measures use standardised coordinates, u = T⁻¹(x − μ) with scores s = Tᵀ∇log p, in which the
particles have unit spread whatever the units of the model. Standard errors are those of independent
draws; no measure here detects that an ensemble is spread more evenly than independent draws.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nvgd._support.compilation import compiled
from nvgd._support.robust import can_fit_scatter, coordinate_scales, student_scatter, whiten
from nvgd.exact.adaptation import is_stray
from nvgd.stein.kernels import IMQ, stein_kernel

# Largest number of particles in pairwise measures, whose cost is quadratic.
MAX_PAIRED = 500
# Bootstrap replicates of the kernelised discrepancy under the hypothesis "these are draws of p".
NUM_BOOTSTRAP = 500
# Whitening needs this many particles per dimension; otherwise coordinates are scaled one by one.
WHITENING_PARTICLES = 4
NUM_FOLDS = 5
# Narrow directions cross a coordinate if correlations reduce the error of its ratio to this share.
SHARE_IF_CROSSED = 0.5
# Share of extreme terms that are trimmed, so that no significance depends on them alone.
TRIMMED = 0.02


class StandardisedSample(NamedTuple):
    """Particles and scores in standardised coordinates, as float64."""

    positions: Float[np.ndarray, "n d"]
    scores: Float[np.ndarray, "n d"]
    is_whitened: bool
    """Whether the coordinates are principal directions, or scaled coordinates of the model."""


class Identities(NamedTuple):
    """Estimates of an identity with standard errors, one per coordinate or direction."""

    values: Float[np.ndarray, " k"]
    errors: Float[np.ndarray, " k"]
    significances: Float[np.ndarray, " k"]
    """Signed deviations from the expected value, in standard errors."""


def standardise(
    particles: Float[np.ndarray, "n d"], scores: Float[np.ndarray, "n d"]
) -> StandardisedSample:
    """Standardise to unit covariance, or to unit variances if there are too few particles."""
    particles, scores = np.asarray(particles, np.float64), np.asarray(scores, np.float64)
    num_particles, dim = particles.shape
    centred = particles - particles.mean(axis=0)
    deviation = np.maximum(centred.std(axis=0), np.finfo(np.float32).tiny)
    positions, scores = centred / deviation, scores * deviation
    if num_particles < WHITENING_PARTICLES * dim:
        return StandardisedSample(positions, scores, False)
    variances, directions = np.linalg.eigh(positions.T @ positions / num_particles)
    lengths = np.sqrt(np.maximum(variances, 1e-12 * variances.max()))
    return StandardisedSample(positions @ directions / lengths, scores @ directions * lengths, True)


def mean_scores(sample: StandardisedSample) -> Identities:
    """E[∇log p] = 0 in every coordinate; violated if the particles are shifted."""
    return _judged(sample.scores, 0.0)


def variance_ratios(
    particles: Float[np.ndarray, "n d"], scores: Float[np.ndarray, "n d"]
) -> Identities:
    """−E[(xⱼ − μⱼ)∂ⱼlog p] = 1 in every coordinate j; below one if the variance is too small.

    For a normal target this is the ratio of the particles' variance to the target's. Where narrow
    directions cross a wide coordinate, such as one of several parameters of which only differences
    are determined, its scores say nothing of its width, and the mean of these products is all
    noise. There, Cⱼₖ∂ₖlog p, summed over k, takes the place of ∂ⱼlog p, with Cⱼₖ from the
    covariance of the particles and Cⱼⱼ = 1: E[(xⱼ − μⱼ)∂ₖlog p] is zero for all other k. It is
    cross-validated, as are the principal ratios.
    """
    positions, scores = _scaled(particles, scores)
    plain = _ratios(positions * -scores)
    num, dim = positions.shape
    if dim < 2 or num < WHITENING_PARTICLES * dim:
        return plain

    def products(found_on: np.ndarray, judged_on: np.ndarray) -> np.ndarray:
        covariance = np.cov(positions[found_on].T)
        variances = np.maximum(np.diag(covariance), np.finfo(np.float32).tiny)
        return positions[judged_on] * -(scores[judged_on] @ covariance) / variances

    found = _cross_validated(products, num, dim)
    is_crossed = found.errors < SHARE_IF_CROSSED * plain.errors
    return Identities(*(np.where(is_crossed, *each) for each in zip(found, plain, strict=True)))


def principal_ratios(
    particles: Float[np.ndarray, "n d"], scores: Float[np.ndarray, "n d"]
) -> Identities:
    """Variance ratios along the principal directions of the particles, widest first.

    If directions were estimated and tested on the same particles, the narrowest would look too
    narrow even for exact draws. Hence they are also estimated on all folds but one and tested on
    that fold. This cross-validation alone would fail too: particles that balance each other, such
    as those of a flow, are narrow in one fold where they are wide in the others. The less
    significant of the two results is returned. Empty with too few particles.
    """
    num, dim = particles.shape
    if dim < 2 or num < 2 * WHITENING_PARTICLES * dim:
        return Identities(*np.empty((3, 0)))
    positions, scores = _scaled(particles, scores)

    def products(found_on: np.ndarray, judged_on: np.ndarray) -> np.ndarray:
        _, directions = np.linalg.eigh(np.cov(positions[found_on].T))
        directions = directions[:, ::-1]
        return (positions[judged_on] @ directions) * -(scores[judged_on] @ directions)

    return _cross_validated(products, num, dim)


def overall_ratio(sample: StandardisedSample) -> Identities:
    """−E[(x − μ)·∇log p]/d = 1."""
    return _ratios(np.mean(sample.positions * -sample.scores, axis=1, keepdims=True))


def _scaled(
    particles: Float[np.ndarray, "n d"], scores: Float[np.ndarray, "n d"]
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n d"]]:
    """Positions around their mean, and scores, in units of every coordinate's spread."""
    scale = np.maximum(particles.std(axis=0), np.finfo(np.float32).tiny)
    return (particles - particles.mean(axis=0)) / scale, scores * scale


def _cross_validated(
    products: Callable[[np.ndarray, np.ndarray], np.ndarray], num: int, num_columns: int
) -> Identities:
    """The milder of two results: all draws judge themselves, and each fold is judged by the others.

    Arguments:
        products: terms of the draws in the second mask, with what the draws in the first one tell.
    """
    held_out = np.empty((num, num_columns))
    for fold in range(NUM_FOLDS):
        held = np.arange(num) % NUM_FOLDS == fold
        held_out[held] = products(~held, held)
    everyone = np.ones(num, bool)
    return _milder(_ratios(products(everyone, everyone)), _ratios(held_out))


def _milder(first: Identities, second: Identities) -> Identities:
    """The less significant estimate of each identity; significance 0 if their signs differ."""
    is_first = np.abs(first.significances) < np.abs(second.significances)
    values, errors, significance = (
        np.where(is_first, mine, other) for mine, other in zip(first, second, strict=True)
    )
    agree = first.significances * second.significances > 0
    return Identities(values, errors, np.where(agree, significance, 0.0))


def _ratios(products: Float[np.ndarray, "n k"]) -> Identities:
    # Bessel's correction: the mean is estimated from the same particles.
    return _judged(products * len(products) / (len(products) - 1), 1.0)


def _judged(terms: Float[np.ndarray, "n k"], expected: float) -> Identities:
    """Means of the terms, with standard errors and significances relative to `expected`.

    On targets with heavy tails a few particles can make a mean significant. Hence the significance
    is the lesser of two: from all terms, and without the most extreme two per cent.
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
    """(mean − expected)/error; for ratios with a positive mean, log(mean)/(error/mean).

    Products are skewed, and a low mean comes with a low estimate of its error. The logarithm with
    the relative error has nearly normal tails on both sides. Below 1/e it would tend to zero with
    the mean, and keeps its value at 1/e instead.
    """
    means, errors = terms.mean(axis=0), _errors(terms)
    plain = (means - expected) / errors
    if not expected:
        return plain
    bounded = np.maximum(means, 1 / math.e)
    logs = np.log(bounded) * bounded / errors
    return np.where((means > 0) & (np.abs(logs) < np.abs(plain)), logs, plain)


class KernelTest(NamedTuple):
    """Test of the hypothesis "these are draws of p" by the squared kernelised Stein discrepancy."""

    value: float
    level: float
    """The 99 % quantile of the bootstrap."""
    share_above: float
    """Share of the bootstrap at or above the value: a p-value."""


def kernel_test(sample: StandardisedSample) -> KernelTest:
    """KSD² (IMQ kernel, all pairs of distinct particles) against a wild bootstrap.

    Under p the statistic is a degenerate U-statistic. Multiplying its terms by random signs εᵢεⱼ
    reproduces its distribution (Chwialkowski, Strathmann and Gretton, 2016; Liu, Lee and Jordan,
    2016).
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


def num_strays(particles: Float[np.ndarray, "n d"], log_densities: Float[np.ndarray, " n"]) -> int:
    """Number of particles whose log density is far too low for their distance from the others."""
    return int(np.sum(_strays(jnp.asarray(particles), jnp.asarray(log_densities))))


@compiled
def _strays(particles: Array, log_densities: Array) -> Array:
    if can_fit_scatter(*particles.shape):
        centre, lower = student_scatter(particles, 4)
        return is_stray(whiten(lower, particles - centre), log_densities)
    centre, scales = coordinate_scales(particles)
    return is_stray((particles - centre) / scales, log_densities)


def num_distinct(sample: StandardisedSample) -> float:
    """Number of distinct particles, n²/Σᵢⱼ exp(−|uᵢ − uⱼ|²/(2h²)) with h = .05√d/n.

    Copies of k points count as k. For an exact sample the value is 96 % of n in one dimension, and
    nearly n in more dimensions.
    """
    stride = -(-len(sample.positions) // MAX_PAIRED)
    positions = sample.positions[::stride]
    num, dim = positions.shape
    bandwidth = 0.05 * math.sqrt(dim) / num
    # From differences, row by row: inner products would suffer cancellation at this scale.
    similar = sum(
        np.exp(-0.5 * np.sum((positions - row) ** 2, axis=1) / bandwidth**2).sum()
        for row in positions
    )
    return float(num**2 / similar * len(sample.positions) / num)
