"""Figures of a posterior: marginals, pairs, history, and ranks of calibration.

With `narrow=True` a figure has fewer panels per row, for narrow pages and phones.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nvgd._support.errors import InputError
from nvgd.posterior.summary import scalars

# Largest numbers of panels that are readable; the figure's title states what is left out.
MAX_MARGINALS = 36
MAX_PAIRS = 6
MAX_PAIRS_NARROW = 3
MAX_POINTS = 1000

COLOUR = "#3b6ea8"


def marginals(draws: Mapping[str, Any], *, narrow: bool = False) -> Figure:
    """One histogram per scalar, with its mean and central 90 % interval."""
    names, values = _columns(draws)
    shown = min(len(names), MAX_MARGINALS)
    num_columns = min(shown, 2 if narrow else 4)
    num_rows = -(-shown // num_columns)
    width = 1.9 if narrow else 2.6
    figure = Figure(figsize=(width * num_columns, 1.9 * num_rows), layout="constrained")
    panels = figure.subplots(num_rows, num_columns, squeeze=False).ravel()
    for axes, name, column in zip(panels, names, values.T, strict=False):
        _histogram(axes, column)
        low, high = np.quantile(column, (0.05, 0.95))
        axes.axvspan(low, high, color=COLOUR, alpha=0.12, linewidth=0)
        axes.axvline(column.mean(), color="black", linewidth=1)
        axes.set_title(name, fontsize=9)
    for axes in panels[shown:]:
        axes.set_visible(False)
    _say_what_is_left_out(figure, shown, len(names))
    return figure


def pairs(draws: Mapping[str, Any], *, narrow: bool = False) -> Figure:
    """Scatter plots of all pairs of the first few scalars."""
    names, values = _columns(draws)
    # More points than these hide each other.
    values = values[:: -(-len(values) // MAX_POINTS)]
    shown = min(len(names), MAX_PAIRS_NARROW if narrow else MAX_PAIRS)
    size = (1.15 if narrow else 1.8) * shown + 0.6
    figure = Figure(figsize=(size, size), layout="constrained")
    panels = figure.subplots(shown, shown, squeeze=False, sharex="col")
    for i in range(shown):
        for j in range(shown):
            axes = panels[i, j]
            if j > i:
                axes.set_visible(False)
            elif i == j:
                _histogram(axes, values[:, i])
            else:
                axes.plot(values[:, j], values[:, i], ".", color=COLOUR, markersize=3, alpha=0.6)
                axes.spines[["top", "right"]].set_visible(False)
            if i == shown - 1:
                axes.set_xlabel(names[j], fontsize=9)
            if j == 0 and i:
                axes.set_ylabel(names[i], fontsize=9)
            axes.tick_params(labelsize=7)
    _say_what_is_left_out(figure, shown, len(names))
    return figure


def history(
    recorded: Mapping[str, np.ndarray], metrics: Mapping[str, np.ndarray], *, narrow: bool = False
) -> Figure:
    """Every recorded quantity and every user metric over the steps."""
    curves = {
        name: (np.arange(1, len(values) + 1), values)
        for name, values in recorded.items()
        if name != "num_gradients"
    }
    if not curves:
        raise InputError("there is no history to plot: these draws were not made by a run.")
    steps = metrics.get("step", np.empty(0))
    curves |= {name: (steps, v) for name, v in metrics.items() if name != "step"}
    figure = Figure(figsize=(3.8 if narrow else 7.0, 1.7 * len(curves)), layout="constrained")
    panels = figure.subplots(len(curves), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (name, (x, y)) in zip(panels, curves.items(), strict=True):
        axes.plot(x, y, color=COLOUR, linewidth=1)
        axes.set_ylabel(name.replace("_", " "), fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("step")
    return figure


def rank_curves(
    points: np.ndarray,
    curves: Mapping[str, np.ndarray],
    band: tuple[np.ndarray, np.ndarray],
    *,
    narrow: bool = False,
) -> Figure:
    """Distribution functions of ranks minus the uniform one, with the band of uniform ranks."""
    shown = min(len(curves), MAX_MARGINALS)
    num_columns = min(shown, 2 if narrow else 4)
    num_rows = -(-shown // num_columns)
    width = 1.9 if narrow else 2.6
    figure = Figure(figsize=(width * num_columns, 1.9 * num_rows), layout="constrained")
    panels = figure.subplots(num_rows, num_columns, squeeze=False, sharex=True, sharey=True)
    panels = panels.ravel()
    for axes, (name, curve) in zip(panels, curves.items(), strict=False):
        axes.fill_between(points, *band, color=COLOUR, alpha=0.2, linewidth=0)
        axes.plot(points, curve, color=COLOUR, linewidth=1, drawstyle="steps-mid")
        axes.axhline(0, color="black", linewidth=0.5)
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[shown:]:
        axes.set_visible(False)
    _say_what_is_left_out(figure, shown, len(curves))
    return figure


def _columns(draws: Mapping[str, Any]) -> tuple[list[str], np.ndarray]:
    """Names and values of all scalars, one column per scalar, one row per draw."""
    names, values = scalars(draws)
    return names, values.reshape(-1, len(names))


def _histogram(axes: Axes, column: np.ndarray) -> None:
    axes.hist(column, bins=min(max(int(np.sqrt(len(column))), 8), 40), color=COLOUR, alpha=0.8)
    axes.set_yticks([])
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _say_what_is_left_out(figure: Figure, shown: int, total: int) -> None:
    if shown < total:
        figure.suptitle(f"the first {shown} of {total} scalars; names= chooses others", fontsize=9)


class _Plot(Protocol):
    def __call__(self, draws: Mapping[str, Any], *, narrow: bool = False) -> Figure: ...


OF_DRAWS: dict[str, _Plot] = {"marginals": marginals, "pairs": pairs}
