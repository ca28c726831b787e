"""What the figures of several experiments share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nvgd.tables import deviation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from nvgd.experiments.base import Rows
    from nvgd.experiments.classification import ClassificationExperiment

# Of the methods, in every figure.
COLOURS = {
    "NVGD": "#d1495b",
    "NVGD paper": "#6b2d3c",
    "NVGD paper Adam": "#b58a95",
    "SVGD": "#2e6f95",
    "SVGD Adam": "#85b4d0",
    "SGLD": "#e9a23b",
    "pULA ε": "#e9a23b",
    "pULA ε/5": "#7a9e7e",
    "ULA sequential": "#8a6fb0",
    "exact sample": "0.35",
}


def band(axes: "Axes", x: np.ndarray, curves: np.ndarray, colour: str, label: str) -> None:
    """Mean and standard deviation over runs, the leading axis of `curves`."""
    mean, width = curves.mean(axis=0), deviation(curves)
    axes.plot(x, mean, color=colour, label=label or None, linewidth=1.8)
    axes.fill_between(x, mean - width, mean + width, color=colour, alpha=0.2, linewidth=0)


def mark_exact(axes: "Axes", values: np.ndarray) -> None:
    """The level, mean and standard deviation, of exact samples."""
    level, width, colour = values.mean(), deviation(values), COLOURS["exact sample"]
    axes.axhline(level, color=colour, linestyle="--", linewidth=1.2, label="exact sample")
    axes.axhspan(level - width, level + width, color=colour, alpha=0.08, linewidth=0)


def curve(rows: "Rows", method: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and one curve a run of a method, of the measure `name`."""
    runs: dict[str, list] = {}
    for row in rows:
        if row["method"] == method and "step" in row and name in row:
            runs.setdefault(row["task"], []).append((row["step"], row[name]))
    # Runs that stopped early have fewer points: all are shown as far as the shortest.
    length = min(map(len, runs.values()))
    points = np.array([run[:length] for run in runs.values()])
    return points[0, :, 0], points[:, :, 1]


def draw_measures(
    experiment: "ClassificationExperiment", rows: "Rows", panels: np.ndarray, names: Sequence[str]
) -> None:
    """One panel a measure, one band a method."""
    from nvgd.experiments.classification import MEASURES, methods_run

    for axes, name in zip(panels, names, strict=True):
        lowest, highest = [], []
        for method in methods_run(experiment, rows):
            steps, values = curve(rows, method, name)
            band(axes, steps, values, experiment.colours[method], method)
            late = values.mean(axis=0)[max(len(steps) // 5, 1) :]
            lowest.append(late.min(initial=np.inf))
            highest.append(late.max(initial=-np.inf))
        margin = 0.08 * (max(highest) - min(lowest)) + 1e-6
        axes.set(xlabel="step", ylabel=MEASURES[name], xlim=(0, experiment.num_steps))
        axes.set_ylim(min(lowest) - margin, max(highest) + margin)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    panels[0].figure.legend(
        handles, labels, loc="outside upper center", ncols=len(labels), frameon=False
    )
