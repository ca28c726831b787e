"""The figure of the demo: particles of every method, and their distance from the target."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nvgd.experiments.figures import mark_exact, staged_band
from nvgd.experiments.methods import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class MethodResult(NamedTuple):
    """All runs of one method; the leading axis is that of the seeds."""

    particles: np.ndarray
    steps: np.ndarray
    curves: dict[str, np.ndarray]
    """The measures over the steps, by name; their last entries are of the returned particles."""
    seconds: np.ndarray
    flow_until: int | None = None
    """The step at which the flow ended and corrections began."""


def draw(
    results: Mapping[str, MethodResult], exact: MethodResult, measures: Mapping[str, str]
) -> "Figure":
    """Scatter plots of each method's first run above, the measures over the steps below.

    Arguments:
        measures: name → label of the axis.
    """
    import matplotlib.pyplot as plt

    from nvgd.experiments.funnel_figures import draw_scatters

    figure = plt.figure(figsize=(11, 7.6), layout="constrained")
    rows = figure.add_gridspec(2, 1, height_ratios=[1.2, 1])
    first_runs = {name: result.particles[0] for name, result in results.items()}
    draw_scatters(figure, rows[0].subgridspec(1, len(results)), first_runs)
    grid = rows[1].subgridspec(1, len(measures))
    panels = [figure.add_subplot(grid[i]) for i in range(len(measures))]
    for axes, (name, label) in zip(panels, measures.items(), strict=True):
        _draw_measure(axes, name, label, results, exact)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _draw_measure(
    axes: "Axes", name: str, label: str, results: Mapping[str, MethodResult], exact: MethodResult
) -> None:
    for method, result in results.items():
        curves = result.curves[name]
        staged_band(axes, result.steps, curves, COLOURS[method], method, result.flow_until)
    mark_exact(axes, exact.curves[name][:, -1])
    last = max(result.steps[-1] for result in results.values())
    axes.set(
        xlim=(0, last),
        xlabel="step (one gradient per particle)",
        ylabel=f"{label} (lower is better)",
    )
    if name == "mmd":
        # The start is far above everything else; an unbiased estimate can be negative.
        late = [r.curves[name].mean(axis=0)[len(r.steps) // 20 :].max() for r in results.values()]
        axes.set_ylim(-0.012, 1.05 * max(late))
    else:
        axes.set_yscale("log")
    axes.spines[["top", "right"]].set_visible(False)
