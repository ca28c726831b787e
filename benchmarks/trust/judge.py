"""Errors of a sample beside the reference draws, in constrained space.

Every scalar of the model is judged: components of vectors and matrices, and deterministic
quantities, except those that are constant.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.stats import kurtosis, norm

import nvgd
from benchmarks.trust.references import Reference
from nvgd.posterior.summary import Summary
from nvgd.targets.positions import element_name

# Draws of the headline energy distance, and most draws of the other one.
NUM_FEW, NUM_MANY = 256, 2000
# Exact samples to compare with.
NUM_SUBSETS = 40
# Above this excess kurtosis, standard deviations of samples say little: quantiles are compared.
HEAVY = 20.0
# Width of the central 90 % of a normal distribution, in standard deviations.
NORMAL_WIDTH = 3.29
SEED = 11

MOST_ENERGY, SD_RATIOS, MOST_SHIFT = 1.5, (0.8, 1.25), 0.25


class Worst(NamedTuple):
    """The worst value over the scalars, and the scalar's name."""

    value: float
    name: str


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Errors of one sample; infinite if the sample is not finite."""

    energy: float
    """Energy distance of the draws, at most 2000 of them, as a multiple of that of 256 exact draws.

    Scalars are first transformed to normal scores by their ranks in the reference.
    """
    energy_all: float
    """The same as a multiple of that of as many exact draws."""
    sd_ratio: Worst
    """Standard deviation over that of the reference, furthest from one on a log scale.

    Of heavy-tailed scalars the ratio of the widths between the 5 % and 95 % quantiles.
    """
    quantile_shift: Worst
    """Largest shift of a 5 % or 95 % quantile, in standard deviations of the reference."""
    mean_error: Worst
    """Largest error of a mean, in units of its stated error combined with the reference's."""
    mean_error_rms: float
    """Root of the mean square of these errors over the scalars: 1 if stated errors are right."""
    exact_energy: float
    """95 % quantile of `energy` over exact samples of the same size.

    It exceeds 1.5 where few directions matter, such as the weights of separated modes.
    """
    exact_sd_ratio: float
    """Median of `sd_ratio` over exact samples of the same size, at most 2000, as a factor ≥ 1."""
    exact_quantile_shift: float
    """Median of `quantile_shift` over exact samples of the same size, at most 2000."""

    @property
    def is_good(self) -> bool:
        """Energy at most 1.5, sd ratios between .8 and 1.25, quantiles within .25 sd."""
        is_near = self.energy <= MOST_ENERGY and self.quantile_shift.value <= MOST_SHIFT
        return is_near and SD_RATIOS[0] <= self.sd_ratio.value <= SD_RATIOS[1]


_NOWHERE = Worst(math.inf, "")
DIVERGED = Judgement(math.inf, math.inf, _NOWHERE, _NOWHERE, _NOWHERE, *[math.inf] * 4)


class Judge:
    """Compares samples with one reference."""

    def __init__(self, reference: Reference):
        self._shapes = {name: draws.shape[1:] for name, draws in reference.draws.items()}
        self._names = [
            element_name(name, index)
            for name, shape in self._shapes.items()
            for index in np.ndindex(shape)
        ]
        columns = self._columns(reference.draws)
        self._is_judged = np.ptp(columns, axis=0) > 1e-6 * np.abs(columns).max(axis=0)
        self._judged_names = [
            name for name, kept in zip(self._names, self._is_judged, strict=True) if kept
        ]
        columns = columns[:, self._is_judged]
        self._columns_of_reference = columns
        self._ordered = np.sort(columns, axis=0)
        self._sd = columns.std(axis=0)
        self._mean, self._error = (
            self._columns(values)[0, self._is_judged]
            for values in (reference.means, reference.mean_errors)
        )
        self._quantiles = np.quantile(columns, (0.05, 0.95), axis=0)
        self._width = self._quantiles[1] - self._quantiles[0]
        self._is_heavy = kurtosis(columns, axis=0) > HEAVY
        self._scale = np.where(self._is_heavy, self._width / NORMAL_WIDTH, self._sd)
        # Samples and exact draws are measured beside one half of the reference, then the other.
        self._rng = np.random.default_rng(SEED)
        shuffled = self._rng.permutation(self._scores(columns))
        self._halves = np.split(shuffled.astype(np.float32), 2)
        self._measures = [nvgd.metrics.Reference(jnp.asarray(half)) for half in self._halves]
        self._exact_energies: dict[int, np.ndarray] = {}
        self._exact_marginals: dict[int, tuple[float, float]] = {}

    def __call__(self, draws: Mapping[str, Any], summary: Summary | None = None) -> Judgement:
        """Judge draws by name, with any leading axes.

        Arguments:
            summary: stated means and their standard errors; those of independent draws if omitted.
        """
        columns = self._columns(draws)[:, self._is_judged]
        if not np.all(np.isfinite(columns)):
            return DIVERGED
        num = len(columns)
        means, stated = columns.mean(axis=0), columns.std(axis=0) / num**0.5
        if summary is not None:
            means, stated = (
                np.array([summary[column][name] for name in self._judged_names])
                for column in ("mean", "mc_error")
            )
        errors = np.abs(means - self._mean) / np.hypot(stated, self._error)
        sd_ratios, shifts = self._marginals(columns)
        energy = self._energy(columns)
        exact_energies = self._energies_of_exact(min(num, NUM_FEW))
        exact_sd_ratio, exact_shift = self._exact_worst(min(num, NUM_MANY))
        return Judgement(
            energy=energy / float(exact_energies.mean()),
            energy_all=energy / float(self._energies_of_exact(min(num, NUM_MANY)).mean()),
            sd_ratio=self._worst(sd_ratios, _log_size(sd_ratios)),
            quantile_shift=self._worst(shifts, shifts),
            mean_error=self._worst(errors, errors),
            mean_error_rms=float(np.sqrt(np.mean(errors**2))),
            exact_energy=float(np.quantile(exact_energies, 0.95) / exact_energies.mean()),
            exact_sd_ratio=exact_sd_ratio,
            exact_quantile_shift=exact_shift,
        )

    def _columns(self, draws: Mapping[str, Any]) -> np.ndarray:
        """All scalars, one column each, in the reference's order."""
        parts = []
        for name, shape in self._shapes.items():
            values = np.asarray(draws[name], np.float64)
            parts.append(values.reshape(-1, int(np.prod(shape))))
        return np.concatenate(parts, axis=1)

    def _scores(self, columns: np.ndarray) -> np.ndarray:
        """Normal scores of the values' ranks in the reference."""
        num = len(self._ordered)
        levels = (np.arange(num) + 0.5) / num
        scores = np.empty_like(columns)
        for i, (values, ordered) in enumerate(zip(columns.T, self._ordered.T, strict=True)):
            scores[:, i] = norm.ppf(np.interp(values, ordered, levels))
        return scores

    def _energy(self, columns: np.ndarray) -> float:
        """Energy distance of evenly selected draws."""
        num = min(len(columns), NUM_MANY)
        chosen = np.linspace(0, len(columns) - 1, num).round().astype(int)
        scores = jnp.asarray(self._scores(columns[chosen]), jnp.float32)
        energies = [float(measure.energy_distance(scores)) for measure in self._measures]
        return float(np.mean(energies))

    def _energies_of_exact(self, num: int) -> np.ndarray:
        """Energy distances of samples of `num` draws, each of one half, from the other half."""
        if num not in self._exact_energies:
            energies = []
            for measure, other in zip(self._measures, self._halves[::-1], strict=True):
                for _ in range(NUM_SUBSETS // 2 if num < len(other) else 1):
                    subset = self._rng.choice(other, num, replace=False)
                    energies.append(float(measure.energy_distance(jnp.asarray(subset))))
            self._exact_energies[num] = np.array(energies)
        return self._exact_energies[num]

    def _marginals(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ratio of spreads, and larger shift of the two quantiles, of every scalar."""
        quantiles = np.quantile(columns, (0.05, 0.95), axis=0)
        widths = (quantiles[1] - quantiles[0]) / self._width
        ratios = np.where(self._is_heavy, widths, columns.std(axis=0) / self._sd)
        return ratios, np.abs(quantiles - self._quantiles).max(axis=0) / self._scale

    def _exact_worst(self, num: int) -> tuple[float, float]:
        """Median, over exact samples, of the worst factor between spreads and worst shift."""
        if num not in self._exact_marginals:
            worst = []
            for _ in range(NUM_SUBSETS):
                columns = self._rng.choice(self._columns_of_reference, num, replace=False)
                ratios, shifts = self._marginals(columns)
                worst.append((np.exp(_log_size(ratios).max()), shifts.max()))
            ratio, shift = np.median(worst, axis=0)
            self._exact_marginals[num] = float(ratio), float(shift)
        return self._exact_marginals[num]

    def _worst(self, values: np.ndarray, badness: np.ndarray) -> Worst:
        index = int(np.argmax(badness))
        return Worst(float(values[index]), self._judged_names[index])


def _log_size(ratios: np.ndarray) -> np.ndarray:
    """|log r|, infinite for a ratio of zero."""
    with np.errstate(divide="ignore"):
        return np.abs(np.log(ratios))
