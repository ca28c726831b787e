"""Draws with importance weights: reliability of the weights, and the evidence."""

import math

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from nvgd._support.errors import InputError, check_count
from nvgd._support.resampling import systematic

# Above this shape of the weights' tail, their mean converges too slowly to be reliable.
RELIABLE_SHAPE = 0.7


class Weighted:
    """Draws x of q with log weights log p(x) − log q(x).

    Pareto-smoothed importance sampling (Vehtari et al., 2024): the largest weights are replaced by
    quantiles of a generalised Pareto distribution fitted to them. Its shape k̂ measures the
    reliability of the weights: at this number of draws they are reliable if k̂ is below .7.

    Arguments:
        positions: draws of q, one per row.
        log_weights: log p(x) − log q(x) of each draw; p need not be normalised.
    """

    def __init__(self, positions: Float[np.ndarray, "n d"], log_weights: ArrayLike):
        self.positions = positions
        self.log_weights = np.asarray(log_weights, np.float64)
        if self.log_weights.shape != (len(positions),) or not len(positions):
            raise InputError(
                f"log_weights must hold one number for each of {len(positions)} draws, got shape "
                f"{self.log_weights.shape}."
            )
        # A draw without a finite density counts as one of density zero.
        finite = np.where(np.isfinite(self.log_weights), self.log_weights, -np.inf)
        if not np.isfinite(finite).any():
            raise InputError("no draw has a finite weight: base and target do not overlap.")
        smoothed, self.pareto_shape = pareto_smoothed(finite)
        self._shift = finite.max()
        self._raw = np.exp(finite - self._shift)
        self.weights: Float[np.ndarray, " n"] = smoothed / smoothed.sum()
        """Smoothed weights, with sum one."""

    @property
    def is_reliable(self) -> bool:
        """Whether k̂ < 0.7."""
        return bool(self.pareto_shape < RELIABLE_SHAPE)

    @property
    def log_evidence(self) -> float:
        """Estimate of log ∫p: the log of the mean unsmoothed weight, which is unbiased for ∫p."""
        return float(np.log(self._raw.mean()) + self._shift)

    @property
    def standard_error(self) -> float:
        """Standard error of the log evidence, sd(w)/(√n mean(w))."""
        return float(self._raw.std(ddof=1) / (self._raw.mean() * math.sqrt(len(self._raw))))

    @property
    def effective_size(self) -> float:
        """Effective sample size, 1/Σw²."""
        return float(1 / np.sum(self.weights**2))

    def mean(self, values: ArrayLike | None = None) -> np.ndarray:
        """The weighted mean of values, one row per draw; of the positions if omitted."""
        return self.weights @ np.asarray(self.positions if values is None else values)

    def resample(self, num_draws: int, *, seed: int = 0) -> np.ndarray:
        """Equally weighted draws, by systematic resampling."""
        check_count("num_draws", num_draws)
        offset = np.random.default_rng(seed).random()
        return self.positions[systematic(self.weights, num_draws, offset)]

    def __repr__(self) -> str:
        return (
            f"Weighted({len(self.positions)} draws, log evidence {self.log_evidence:.3f} ± "
            f"{self.standard_error:.3f}, Pareto k̂ {self.pareto_shape:.2f}, effective size "
            f"{self.effective_size:.0f})"
        )


def pareto_smoothed(
    log_weights: Float[np.ndarray, " n"],
) -> tuple[Float[np.ndarray, " n"], float]:
    """Weights with a smoothed tail, up to a factor, and the tail's shape k̂.

    With fewer than five draws in the tail, or a tail of equal weights, nothing is smoothed. k̂ is
    infinite if a weight in the tail is zero, or if a few draws outweigh otherwise equal ones.
    """
    weights = np.exp(log_weights - log_weights.max())
    num_draws = len(weights)
    num_tail = min(math.ceil(0.2 * num_draws), math.ceil(3 * math.sqrt(num_draws)))
    order = np.argsort(weights)
    tail, cutoff = order[-num_tail:], weights[order[-num_tail - 1]] if num_tail < num_draws else 0
    if num_tail < 5:
        return weights, math.nan
    if weights[tail[0]] <= 0:
        return weights, math.inf
    # Weights equal to the cutoff do not belong to the tail.
    tail = tail[weights[tail] > cutoff * (1 + 1e-12)]
    num_tail, excesses = len(tail), weights[tail] - cutoff
    if num_tail < 5 or np.ptp(excesses) < 1e-12 * excesses[-1]:
        return weights, -math.inf if weights.max() <= 2 * cutoff else math.inf
    shape, scale = generalised_pareto_fit(excesses)
    levels = (np.arange(num_tail) + 0.5) / num_tail
    quantiles = scale * (
        np.expm1(-shape * np.log1p(-levels)) / shape if abs(shape) > 1e-9 else -np.log1p(-levels)
    )
    smoothed = weights.copy()
    # No smoothed weight exceeds the largest weight, which is 1 here.
    smoothed[tail] = np.minimum(cutoff + quantiles, 1.0)
    return smoothed, shape


def generalised_pareto_fit(excesses: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Shape k and scale σ of a generalised Pareto distribution, from sorted positive values.

    The quasi-Bayesian estimate of Zhang and Stephens (2009), with the weak prior of Vehtari et al.
    that shrinks k towards ½.
    """
    num = len(excesses)
    num_points = 30 + int(math.sqrt(num))
    quartile = excesses[int(num / 4 + 0.5) - 1]
    points = 1 - np.sqrt(num_points / (np.arange(1, num_points + 1) - 0.5))
    points = points / (3 * quartile) + 1 / excesses[-1]
    shapes = np.log1p(-points[:, None] * excesses).mean(axis=1)
    profile = num * (np.log(-points / shapes) - shapes - 1)
    posterior = np.exp(profile - profile.max())
    point = float(np.sum(points * posterior) / posterior.sum())
    shape = float(np.log1p(-point * excesses).mean())
    scale = -shape / point
    return (shape * num + 5) / (num + 10), scale
