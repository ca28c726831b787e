"""Parts that the figures of several experiments share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nvgd._support.files import write_atomically
from nvgd._support.tables import deviation
from nvgd.experiments.methods import COLOURS, EXACT
from nvgd.experiments.records import Rows
from nvgd.flow.stage import StageRecord
from nvgd.posterior.palette import tint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def save_figure(figure: "Figure", path: Path) -> Path:
    """Write the figure to `path` and close it."""
    import matplotlib.pyplot as plt

    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=130))
    plt.close(figure)
    return path


def band(axes: "Axes", x: np.ndarray, curves: np.ndarray, colour: str, label: str) -> None:
    """Mean and standard deviation over runs, the leading axis of `curves`."""
    mean, width = curves.mean(axis=0), deviation(curves)
    axes.plot(x, mean, color=colour, label=label or None, linewidth=1.8)
    axes.fill_between(x, mean - width, mean + width, color=colour, alpha=0.2, linewidth=0)


def staged_band(
    axes: "Axes",
    steps: np.ndarray,
    curves: np.ndarray,
    colour: str,
    label: str,
    flow_until: int | None,
) -> None:
    """Draw the band of runs whose flow ended at a step, with separate curves for the stages.

    During the corrections, the particles are like independent draws: less evenly spread than those
    of the flow, so their distance is larger at any single step. The returned particles are one
    draw per chain, chosen to be spread evenly. The corrections are therefore a dotted curve that
    joins neither the flow nor the dot at the end, the returned particles.

    Arguments:
        steps, curves: steps, and the measure at them, one row per run; the last entry is that of
            the returned particles.
        flow_until: where the flow ended; None if it lasted to the end.
    """
    if flow_until is None or flow_until >= steps[-1]:
        band(axes, steps, curves, colour, label)
        return
    in_flow = steps <= flow_until
    after = ~in_flow
    after[-1] = False
    band(axes, steps[in_flow], curves[:, in_flow], colour, f"{label}: flow")
    pale = tint(colour, 0.35)
    mean = curves.mean(axis=0)
    axes.plot(
        steps[after], mean[after], ":", color=pale, label=f"{label}: corrections", linewidth=1.4
    )
    axes.axvline(flow_until, color=pale, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.plot(
        steps[-1:],
        mean[-1:],
        "o",
        color=colour,
        label=f"{label}: returned particles",
        clip_on=False,
        zorder=4,
    )


def mark_exact(axes: "Axes", values: np.ndarray) -> None:
    """A horizontal band: mean and standard deviation of a measure over exact samples."""
    level, width, colour = values.mean(), deviation(values), COLOURS[EXACT]
    axes.axhline(level, color=colour, linestyle="--", linewidth=1.2, label=EXACT)
    axes.axhspan(level - width, level + width, color=colour, alpha=0.08, linewidth=0)


def end_of_flow(stages: Sequence[StageRecord]) -> int | None:
    """The step at which a flow ended; None if nothing followed it."""
    later = [stage for stage in stages if stage.kind != "flow"]
    return stages[0].until_step if later and stages[0].kind == "flow" else None


def curve(rows: Rows, method: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and the measure `name` at these steps, one row per run of a method."""
    runs: dict[str, list] = {}
    for row in rows:
        if row["method"] == method and "step" in row and name in row:
            runs.setdefault(row["task"], []).append((row["step"], row[name]))
    # Runs that stopped early have fewer points: all curves end with the shortest.
    length = min(map(len, runs.values()))
    points = np.array([run[:length] for run in runs.values()])
    return points[0, :, 0], points[:, :, 1]


def draw_measures(
    panels: np.ndarray,
    rows: Rows,
    measures: Mapping[str, str],
    colours: Mapping[str, str],
    num_steps: int,
) -> None:
    """Measures over the steps: one panel per measure, one band per method.

    Arguments:
        measures: name → label of the axis.
        colours: method → colour.
        num_steps: where the axis of steps ends.
    """
    for axes, (name, label) in zip(panels, measures.items(), strict=True):
        lowest, highest = [], []
        for method, colour in colours.items():
            steps, values = curve(rows, method, name)
            band(axes, steps, values, colour, method)
            late = values.mean(axis=0)[max(len(steps) // 5, 1) :]
            lowest.append(late.min(initial=np.inf))
            highest.append(late.max(initial=-np.inf))
        margin = 0.08 * (max(highest) - min(lowest)) + 1e-6
        axes.set(xlabel="step", ylabel=label, xlim=(0, num_steps))
        axes.set_ylim(min(lowest) - margin, max(highest) + margin)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    panels[0].figure.legend(
        handles, labels, loc="outside upper center", ncols=len(labels), frameon=False
    )
