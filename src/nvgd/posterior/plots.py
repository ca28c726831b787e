"""Figures of draws: marginals, pairs, and ranks of calibration.

With `narrow=True` a figure has fewer panels per row, for narrow pages and phones.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from nvgd.posterior.palette import REFERENCE
from nvgd.posterior.selection import important, without_axes
from nvgd.posterior.summary import scalars
from nvgd.targets.models import Labels

# Most panels of a readable figure; its title says how many scalars are omitted.
MAX_MARGINALS = 36
MAX_PAIRS = 6
MAX_PAIRS_NARROW = 3
# Points in a scatter plot, and marks below a density; more of them overlap.
MAX_POINTS = 1000
MAX_MARKS = 200
# A positive scalar has a logarithmic axis if its central 98 % span more than this factor.
WIDE = 50.0

INK = "#1c2430"


def marginals(
    draws: Mapping[str, Any],
    *,
    labels: Labels | None = None,
    colour: str = REFERENCE,
    narrow: bool = False,
) -> Figure:
    """The density of every scalar, with its median and its central 50 % and 90 %."""
    names, values = _columns(draws, labels)
    shown = min(len(names), MAX_MARGINALS)
    figure, panels = _grid(shown, narrow)
    for axes, name, column in zip(panels, names, values.T, strict=False):
        draw_density(axes, column, colour)
        _draw_quantiles(axes, column)
        axes.set_title(name, fontsize=9)
    figure.supxlabel("dot: median, bars: central 50 % and 90 %", fontsize=8)
    if shown < len(names):
        figure.suptitle(f"the first {shown} of {len(names)} scalars", fontsize=9)
    return figure


def pairs(
    draws: Mapping[str, Any],
    *,
    labels: Labels | None = None,
    colour: str = REFERENCE,
    narrow: bool = False,
) -> Figure:
    """Scatter plots of all pairs of a few scalars.

    If there are many, it shows parameters without axes and those that depend most on them
    (`selection`).
    """
    names, values = _columns(draws, labels)
    values = values[:: -(-len(values) // MAX_POINTS)]
    number = MAX_PAIRS_NARROW if narrow else MAX_PAIRS
    chosen = important(values, without_axes(draws), number)
    shown = len(chosen)
    size = (1.15 if narrow else 1.8) * shown + 0.6
    figure = Figure(figsize=(size, size), layout="constrained")
    panels = figure.subplots(shown, shown, squeeze=False, sharex="col")
    is_log = [is_wide(column) for column in values.T]
    for row, i in enumerate(chosen):
        for column, j in enumerate(chosen):
            axes = panels[row, column]
            if column > row:
                axes.set_visible(False)
                continue
            if column == row:
                draw_density(axes, values[:, i], colour, is_log=is_log[i])
            else:
                x, y = values[:, j], values[:, i]
                axes.plot(x, y, ".", color=colour, markersize=3, alpha=0.5, markeredgewidth=0)
                axes.spines[["top", "right"]].set_visible(False)
                axes.set_yscale("log" if is_log[i] else "linear")
                axes.set_ylim(*axis_limits(y, is_log=is_log[i]))
            axes.set_xscale("log" if is_log[j] else "linear")
            axes.set_xlim(*axis_limits(values[:, j], is_log=is_log[j]))
            if row == shown - 1:
                axes.set_xlabel(names[j], fontsize=9)
            if column == 0 and row:
                axes.set_ylabel(names[i], fontsize=9)
            elif column < row:
                axes.set_yticklabels([])
            axes.tick_params(labelsize=7)
    if shown < len(names):
        figure.suptitle(f"{shown} of {len(names)} scalars", fontsize=9)
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
    figure, panels = _grid(shown, narrow, sharex=True, sharey=True)
    for axes, (name, curve) in zip(panels, curves.items(), strict=False):
        axes.fill_between(points, *band, color=REFERENCE, alpha=0.25, linewidth=0)
        axes.plot(points, curve, color=INK, linewidth=1, drawstyle="steps-mid")
        axes.axhline(0, color=INK, linewidth=0.5)
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    if shown < len(curves):
        figure.suptitle(f"the first {shown} of {len(curves)} scalars", fontsize=9)
    return figure


def draw_density(
    axes: Axes, column: Float[np.ndarray, " m"], colour: str, *, is_log: bool = False
) -> None:
    """The density of one scalar, or of its logarithm; marks for its draws if there are few."""
    axes.set_yticks([])
    axes.tick_params(labelsize=7)
    axes.xaxis.set_major_locator(LogLocator() if is_log else MaxNLocator(4))
    axes.spines[["top", "right", "left"]].set_visible(False)
    column = column[np.isfinite(column)]
    if not len(column) or np.ptp(column) == 0:
        text = f"constant: {column[0]:.4g}" if len(column) else "not finite"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", fontsize=8)
        axes.set_xticks([])
        return
    low, high = axis_limits(column, is_log=is_log)
    if is_log:
        grid = np.geomspace(low, high, 200)
        heights = kernel_density(np.log(column), np.log(grid))
    else:
        grid = np.linspace(low, high, 200)
        heights = kernel_density(column, grid)
    axes.fill_between(grid, heights, color=colour, alpha=0.35, linewidth=0)
    axes.plot(grid, heights, color=colour, linewidth=1.3)
    if len(column) <= MAX_MARKS:
        bottom = np.full(len(column), -0.03 * heights.max())
        axes.plot(column, bottom, "|", color=colour, markersize=4, alpha=0.6, zorder=1)
    axes.set_xlim(low, high)
    axes.set_ylim(-0.06 * heights.max(), 1.08 * heights.max())


def _draw_quantiles(axes: Axes, column: Float[np.ndarray, " m"]) -> None:
    """Median, central 50 % and central 90 %, at the foot of the density."""
    column = column[np.isfinite(column)]
    if not len(column) or np.ptp(column) == 0:
        return
    levels = np.quantile(column, (0.05, 0.25, 0.5, 0.75, 0.95))
    axes.hlines(0, levels[0], levels[4], color=INK, linewidth=1)
    axes.hlines(0, levels[1], levels[3], color=INK, linewidth=3)
    axes.plot([levels[2]], [0], "o", color="white", markeredgecolor=INK, markersize=4.5, zorder=3)


def kernel_density(
    column: Float[np.ndarray, " m"], grid: Float[np.ndarray, " g"]
) -> Float[np.ndarray, " g"]:
    """Gaussian kernel density, with draws reflected where the support seems to end.

    The support is taken to end at 0 if no draw is negative, and at 1 if all lie between 0 and 1.
    """
    column = column[:: -(-len(column) // (2 * MAX_POINTS))]
    spread = np.subtract(*np.quantile(column, (0.75, 0.25))) / 1.349
    # Silverman's rule; many equal draws have no spread between their quartiles.
    width = 0.9 * (min(spread, column.std()) or column.std()) * len(column) ** -0.2
    points = [column]
    if column.min() >= 0:
        points.append(-column)
        if column.max() <= 1:
            points.append(2 - column)
    offsets = (grid[:, None] - np.concatenate(points)) / width
    heights = np.exp(-0.5 * offsets**2).sum(axis=1) / (len(column) * width * np.sqrt(2 * np.pi))
    is_outside = (grid < 0) if column.min() >= 0 else np.zeros(len(grid), bool)
    if column.min() >= 0 and column.max() <= 1:
        is_outside |= grid > 1
    return np.where(is_outside, 0.0, heights)


def axis_limits(column: Float[np.ndarray, " m"], *, is_log: bool = False) -> tuple[float, float]:
    """Limits of an axis: the central 99 % with a margin, so that outliers do not set the scale."""
    column = column[np.isfinite(column)]
    if not len(column):
        return 0.0, 1.0
    low, high = np.quantile(column, (0.005, 0.995))
    if is_log:
        margin = (high / low) ** 0.06
        return float(low / margin), float(high * margin)
    margin = 0.08 * (high - low) or max(abs(high), 1.0) * 0.05
    # A support that ends at zero is shown to end there.
    return float(0.0 if low - margin < 0 <= column.min() else low - margin), float(high + margin)


def is_wide(column: Float[np.ndarray, " m"]) -> bool:
    """Whether a scalar is positive and spans orders of magnitude, as a scale does."""
    if not len(column) or not np.all(column > 0) or not np.isfinite(column).all():
        return False
    low, high = np.quantile(column, (0.01, 0.99))
    return bool(high > WIDE * low)


def _columns(
    draws: Mapping[str, Any], labels: Labels | None
) -> tuple[list[str], Float[np.ndarray, "m c"]]:
    """Names and values of all scalars, one column per scalar, one row per draw."""
    names, values = scalars(draws, labels)
    return names, values.reshape(-1, len(names))


def _grid(shown: int, narrow: bool, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure with this many small panels."""
    num_columns = min(shown, 2 if narrow else 4)
    num_rows = -(-shown // num_columns)
    width = 1.9 if narrow else 2.6
    # Wide enough for the caption below a single panel.
    figure = Figure(figsize=(max(width * num_columns, 3.0), 1.9 * num_rows))
    figure.set_layout_engine("constrained", h_pad=0.07)
    panels = figure.subplots(num_rows, num_columns, squeeze=False, **options).ravel()
    for axes in panels[shown:]:
        figure.delaxes(axes)
    return figure, list(panels[:shown])
