"""The demo's picture: scatter plots above, MMD² curves below."""

from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from nvgd.experiments.figures import COLOURS, band, mark_exact
from nvgd.experiments.funnel_figures import draw_scatters

if TYPE_CHECKING:
    from nvgd.experiments.demo import MethodResult


def draw(results: dict[str, "MethodResult"], exact: "MethodResult") -> Figure:
    """Scatter of each method's first run over the density; MMD² curves with bands below."""
    figure = plt.figure(figsize=(11, 7.2), layout="constrained")
    rows = figure.add_gridspec(2, 1, height_ratios=[1.25, 1])
    particles = [result.particles[0] for result in results.values()]
    draw_scatters(figure, rows[0].subgridspec(1, len(results)), list(results), particles)
    axes = figure.add_subplot(rows[1])
    for name, result in results.items():
        band(axes, result.steps, result.mmd_curves, COLOURS[name], name)
    mark_exact(axes, exact.mmd)
    # The start, far above everything else, would flatten the rest.
    late = [r.mmd_curves.mean(axis=0)[len(r.steps) // 20 :].max() for r in results.values()]
    last = max(result.steps[-1] for result in results.values())
    axes.set(xlim=(0, last), ylim=(-0.012, 1.05 * max(late)), xlabel="step", ylabel="MMD²")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=len(results) + 1, loc="upper right")
    return figure
