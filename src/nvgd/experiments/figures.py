"""What the figures of several experiments share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

if TYPE_CHECKING:
    from nvgd.experiments.base import Rows
    from nvgd.experiments.classification import ClassificationExperiment


def band(axes: Axes, x: np.ndarray, curves: np.ndarray, colour: str, label: str) -> None:
    """Mean and standard deviation over runs, the leading axis of `curves`."""
    mean, deviation = curves.mean(axis=0), curves.std(axis=0)
    axes.plot(x, mean, color=colour, label=label or None, linewidth=1.8)
    axes.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.2, linewidth=0)


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
    from nvgd.experiments.classification import MEASURES

    for axes, name in zip(panels, names, strict=True):
        lowest, highest = [], []
        for method in experiment.methods:
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
