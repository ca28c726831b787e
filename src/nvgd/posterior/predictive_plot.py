"""Posterior predictive check: data predicted by the model beside the observed data."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from nvgd.posterior.palette import REFERENCE
from nvgd.targets.target import Target

# Number of draws that predict; enough for 90 % intervals.
NUM_DRAWS = 200
# Data are shown one by one up to this number, and as a distribution beyond it.
MAX_ONE_BY_ONE = 40
# Largest number of observed values to predict, and most variables to show.
MAX_OBSERVED = 200_000
MAX_PANELS = 6

INK = "#1c2430"


class Predicted(NamedTuple):
    """Observed values of one variable, and as many predicted ones per draw."""

    observed: Float[np.ndarray, " n"]
    new: Float[np.ndarray, "k n"]

    @property
    def share_inside(self) -> float:
        """Share of the observed values inside their central 90 % predictive interval."""
        low, high = np.quantile(self.new, (0.05, 0.95), axis=0)
        return float(np.mean((self.observed >= low) & (self.observed <= high)))


def predict_observed(
    target: Target, positions: Float[np.ndarray, "m d"], *, seed: int = 0
) -> dict[str, Predicted]:
    """New data for every observed variable; empty if the model has none, or too many.

    Arguments:
        positions: draws in unconstrained space; evenly selected ones predict.
    """
    observed = target.model.observed() or {}
    total = sum(np.size(values) for values in observed.values())
    if not 0 < total <= MAX_OBSERVED:
        return {}
    chosen = positions[
        np.linspace(0, len(positions) - 1, min(NUM_DRAWS, len(positions))).astype(int)
    ]
    structured = jax.vmap(target.structure)(jnp.asarray(chosen))
    new = target.model.predict(jax.random.key(seed), structured) or {}
    found = {}
    for name, values in observed.items():
        # Data that were changed after the run, as by pymc.set_data, cannot be compared.
        if name in new and np.shape(new[name])[1:] == np.shape(values):
            flat = np.asarray(new[name], np.float64).reshape(len(chosen), -1)
            found[name] = Predicted(np.asarray(values, np.float64).ravel(), flat)
    return found


def predictive(
    found: Mapping[str, Predicted], *, colour: str = REFERENCE, narrow: bool = False
) -> Figure:
    """One panel per observed variable: intervals of single data, or distribution functions."""
    shown = dict(list(found.items())[:MAX_PANELS])
    num_columns = min(len(shown), 1 if narrow else 2)
    num_rows = -(-len(shown) // num_columns)
    size = (3.8 if narrow else 7.2, 2.9 * num_rows)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(num_rows, num_columns, squeeze=False).ravel()
    for axes, (name, predicted) in zip(panels, shown.items(), strict=False):
        draw = _draw_data if len(predicted.observed) <= MAX_ONE_BY_ONE else _draw_distribution
        draw(axes, name, predicted, colour)
        number = len(predicted.observed)
        share = f"{100 * predicted.share_inside:.0f} %"
        axes.set_title(f"{share} of {number:,} values within their 90 % interval", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(
            frameon=False, fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.18)
        )
    for axes in panels[len(shown) :]:
        figure.delaxes(axes)
    return figure


def _draw_data(axes: Axes, name: str, predicted: Predicted, colour: str) -> None:
    """Central 50 % and 90 % of the predictions, and the observed value, for every observation."""
    numbers = np.arange(len(predicted.observed))
    levels = np.quantile(predicted.new, (0.05, 0.25, 0.75, 0.95), axis=0)
    axes.vlines(numbers, levels[0], levels[3], color=colour, linewidth=1.5, alpha=0.5)
    axes.vlines(
        numbers, levels[1], levels[2], color=colour, linewidth=4, label="predicted, 50 % and 90 %"
    )
    axes.plot(numbers, predicted.observed, "o", color=INK, markersize=4, label="observed")
    axes.set_xlabel("observation", fontsize=8)
    axes.set_ylabel(name, fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))


def _draw_distribution(axes: Axes, name: str, predicted: Predicted, colour: str) -> None:
    """Distribution functions: the central 90 % of those of the new data, and the observed one."""
    low, high = np.quantile(np.concatenate([predicted.observed, predicted.new[0]]), (0.002, 0.998))
    margin = 0.05 * (high - low) or 1.0
    grid = np.linspace(low - margin, high + margin, 300)
    levels = [_distribution(row, grid) for row in predicted.new]
    band = np.quantile(levels, (0.05, 0.95), axis=0)
    label = "predicted, 90 % of draws"
    axes.fill_between(grid, *band, color=colour, alpha=0.4, linewidth=0, label=label)
    axes.plot(
        grid, _distribution(predicted.observed, grid), color=INK, linewidth=1.3, label="observed"
    )
    axes.set_xlabel(name, fontsize=8)
    axes.set_ylabel("share of values below", fontsize=8)


def _distribution(
    values: Float[np.ndarray, " n"], grid: Float[np.ndarray, " g"]
) -> Float[np.ndarray, " g"]:
    """The empirical distribution function on a grid."""
    return np.searchsorted(np.sort(values), grid, side="right") / len(values)
