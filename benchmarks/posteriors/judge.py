"""Distances of a sample from the reference draws, relative to exact samples of the same size."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

import nvgd

NUM_PARTICLES = 256
SEED = 7


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Distances of one sample from the reference; infinite if the sample is not finite."""

    energy_ratio: float
    """Standardised energy distance over its mean for exact draws: about 1 for exact draws."""
    energy_distance: float
    smallest_sd_ratio: float
    """Smallest ratio, over coordinates, of the standard deviation to that of the reference."""
    largest_sd_ratio: float
    largest_ks: float
    """Largest Kolmogorov-Smirnov distance over the coordinates."""


DIVERGED = Judgement(*[math.inf] * 5)


class Judge:
    """Compares samples with one reference.

    Samples are measured against one half of the reference. The other half, in samples of 256,
    gives the distances of exact draws.
    """

    def __init__(self, draws: np.ndarray):
        draws = np.asarray(draws, np.float64)
        # The whole reference sets the scales; it is shuffled, so that both halves hold all chains.
        self.mean, self.sd = draws.mean(axis=0), draws.std(axis=0)
        shuffled = np.random.default_rng(SEED).permutation(self._standardised(draws))
        half = len(draws) // 2
        self._ordered = np.sort(shuffled[:half], axis=0)
        self._measure = nvgd.metrics.Reference(jnp.asarray(shuffled[:half], jnp.float32))
        starts = range(half, len(draws) - NUM_PARTICLES + 1, NUM_PARTICLES)
        subsets = [shuffled[start : start + NUM_PARTICLES] for start in starts]
        self.exact_energy_distance = float(np.mean([self._energy(subset) for subset in subsets]))
        self.exact_largest_ks = float(np.mean([self._largest_ks(subset) for subset in subsets]))

    def __call__(self, sample: ArrayLike) -> Judgement:
        """Judge a sample (n, d)."""
        standardised = self._standardised(np.asarray(sample, np.float64))
        if not np.all(np.isfinite(standardised)):
            return DIVERGED
        energy = self._energy(standardised)
        sds = standardised.std(axis=0)
        if not math.isfinite(energy):
            return DIVERGED
        return Judgement(
            energy / self.exact_energy_distance,
            energy,
            float(sds.min()),
            float(sds.max()),
            self._largest_ks(standardised),
        )

    def _standardised(self, draws: np.ndarray) -> np.ndarray:
        return (draws - self.mean) / self.sd

    def _energy(self, standardised: np.ndarray) -> float:
        return float(self._measure.energy_distance(jnp.asarray(standardised, jnp.float32)))

    def _largest_ks(self, standardised: np.ndarray) -> float:
        levels = np.arange(len(standardised) + 1) / len(standardised)
        gaps = []
        for column, ordered in zip(standardised.T, self._ordered.T, strict=True):
            heights = np.searchsorted(ordered, np.sort(column)) / len(ordered)
            gaps += [np.max(levels[1:] - heights), np.max(heights - levels[:-1])]
        return float(max(gaps))
