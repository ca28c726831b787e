"""The result of simulation-based calibration."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from nvgd._support.errors import InputError, check_names
from nvgd._support.tables import align
from nvgd.posterior.diagnostics.rank_uniformity import holm, uniform_band, uniformity_p_values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Ranks are called uniform unless an adjusted p-value is below this.
SIGNIFICANCE = 0.01
# Probability of the band in the figure, for each scalar.
BAND = 0.95


@dataclasses.dataclass(frozen=True, repr=False)
class CalibrationResult:
    """Ranks of true parameters among posterior draws, and whether they are uniform.

    `print(result)` shows a table; `result["theta[0]"]` holds the ranks of one scalar.

    Attributes:
        names: names of the scalars, such as `weights[2]`.
        ranks: one row per simulation, one column per scalar: how many of the `num_ranks` − 1 draws
            are below the true value.
        num_ranks: number of possible ranks.
        stopped: numbers of the simulations whose run stopped early.
    """

    names: tuple[str, ...]
    ranks: Int[np.ndarray, "n k"]
    num_ranks: int
    stopped: tuple[int, ...] = ()

    def __getitem__(self, name: str) -> Int[np.ndarray, " n"]:
        if name not in self.names:
            raise InputError(f"the scalars are {', '.join(self.names)}, not {name!r}.")
        return self.ranks[:, self.names.index(name)]

    @functools.cached_property
    def p_values(self) -> dict[str, float]:
        """Probability of ranks at least as far from uniform, for each scalar alone."""
        found = uniformity_p_values(self.ranks, self.num_ranks)
        return dict(zip(self.names, found.tolist(), strict=True))

    @functools.cached_property
    def adjusted_p_values(self) -> dict[str, float]:
        """The p-values after Holm's correction for the number of scalars."""
        found = holm(np.array(list(self.p_values.values())))
        return dict(zip(self.names, found.tolist(), strict=True))

    @property
    def is_uniform(self) -> bool:
        """Whether no adjusted p-value is below 1 %."""
        return min(self.adjusted_p_values.values()) >= SIGNIFICANCE

    @property
    def _shares(self) -> Float[np.ndarray, "n k"]:
        return (self.ranks + 0.5) / self.num_ranks

    def rows(self) -> list[tuple[str, ...]]:
        """The rows of the table as text, header first."""
        means, spreads = self._shares.mean(axis=0), self._shares.std(axis=0) * np.sqrt(12)
        rows: list[tuple[str, ...]] = [
            ("", "mean rank", "spread", "p value", "adjusted", "posterior")
        ]
        for i, name in enumerate(self.names):
            adjusted = self.adjusted_p_values[name]
            verdict = "fits"
            if adjusted < SIGNIFICANCE:
                verdict = _fault(means[i], spreads[i], len(self.ranks))
            numbers = (means[i], spreads[i], self.p_values[name], adjusted)
            rows.append((name, *(f"{number:.3g}" for number in numbers), verdict))
        return rows

    def plot(self, names: Sequence[str] | None = None, *, narrow: bool = False) -> "Figure":
        """Distribution functions of the ranks minus the uniform one, with 95 % bands.

        A curve that leaves the band anywhere is evidence against uniform ranks. An arch means that
        the posterior is too high, a valley that it is too low; a rise, then a fall below zero that
        it is too narrow, the reverse that it is too wide.

        Arguments:
            names: names of the scalars to show; all if omitted.
            narrow: whether to use fewer panels per row, for a narrow page.
        """
        from nvgd.posterior import plots

        check_names("names", names or (), self.names)
        points = np.arange(1, self.num_ranks) / self.num_ranks
        bounds = uniform_band(len(self.ranks), self.num_ranks, BAND)
        curves = {
            name: np.mean(self[name][:, None] < np.arange(1, self.num_ranks), axis=0) - points
            for name in names or self.names
        }
        return plots.rank_curves(
            points, curves, (bounds[0] - points, bounds[1] - points), narrow=narrow
        )

    def __repr__(self) -> str:
        verdict = "uniform" if self.is_uniform else "NOT uniform"
        text = (
            f"{len(self.ranks)} simulations: ranks are {verdict} (smallest adjusted p value "
            f"{min(self.adjusted_p_values.values()):.2g}; expected: mean rank 0.5, spread 1).\n"
        )
        if self.stopped:
            text += f"{len(self.stopped)} runs stopped early: {_listed(self.stopped)}.\n"
        return text + align(self.rows())


def _fault(mean: float, spread: float, number: int) -> str:
    """What is most wrong with a posterior, from the mean and spread of the true values' ranks."""
    # Standard errors for uniform ranks: the variance of the square is 1/180.
    shift = (mean - 0.5) * np.sqrt(12 * number)
    width = (spread**2 - 1) * np.sqrt(number / 0.8)
    if max(abs(shift), abs(width)) < 2:
        return "wrong shape"
    if abs(shift) > abs(width):
        return "too low" if shift > 0 else "too high"
    return "too narrow" if width > 0 else "too wide"


def _listed(numbers: Sequence[int], most: int = 10) -> str:
    text = ", ".join(map(str, numbers[:most]))
    return text + (", …" if len(numbers) > most else "")
