"""Figures of the two-dimensional funnel."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpecBase
from matplotlib.quiver import Quiver

from nvgd.evaluation.curved_densities import Funnel
from nvgd.experiments.figures import curve, mark_exact, staged_band
from nvgd.experiments.funnel_frames import DEPTH, Frame, arrow_grid
from nvgd.experiments.funnel_measures import IN_FIGURES
from nvgd.experiments.methods import COLOURS, EXACT, PAPER, SEQUENTIAL
from nvgd.experiments.records import Rows
from nvgd.posterior.palette import tint

# x₂ across, x₁ up: the neck of the funnel is at the bottom.
ACROSS, UP = (-13.0, 13.0), (-9.5, 9.0)
# Most frames of the animation.
MAX_FRAMES = 48
# Most points in a scatter plot; longer chains are thinned.
MAX_POINTS = 100
SINGLE = f"{SEQUENTIAL}, median"
# Length of an arrow, in units of the axes, where |f| = 1; |f| beyond which arrows are cut; and |f|
# of the arrow in the legend.
ARROW, LONGEST, KEY = 1.2, 1.5, 1


def curves(rows: Rows, methods: Iterable[str], num_steps: int) -> Figure:
    """Distances over steps, mean and standard deviation over runs (the paper's Figure 3)."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.3), layout="constrained")
    for axes, (name, label) in zip(panels, IN_FIGURES.items(), strict=True):
        late = []
        for method in methods:
            steps, values = curve(rows, method, name)
            if method == SEQUENTIAL:
                # Single chains differ so much from run to run that a band would cover the rest.
                axes.plot(steps, np.median(values, axis=0), color=COLOURS[method], label=SINGLE)
                continue
            staged_band(axes, steps, values, COLOURS[method], method, _flow_until(rows, method))
            # The limits of the axis leave out the start, which is far above everything else.
            late.append(values.mean(axis=0)[len(steps) // 20 :].max())
        _, exact = curve(rows, EXACT, name)
        mark_exact(axes, exact[0])
        axes.set(
            xlabel="step (one gradient per particle)",
            ylabel=f"{label} (lower is better)",
            xlim=(0, num_steps),
        )
        if name == "mmd":
            # An unbiased estimate can be negative.
            axes.set_ylim(-0.02, 1.05 * max(late))
        else:
            axes.set_yscale("log")
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, frameon=False)
    return figure


def _flow_until(rows: Rows, method: str) -> int | None:
    """The step at which the flow of a method's runs ended; None if the records do not say."""
    found = [row.get("flow_until") for row in rows if row["method"] == method and "status" in row]
    return found[0] if found else None


def scatter(particles: Mapping[str, np.ndarray]) -> Figure:
    """The particles of every method over the true density (the paper's Figure 4)."""
    figure = plt.figure(figsize=(2.8 * len(particles), 4), layout="constrained")
    draw_scatters(figure, figure.add_gridspec(1, len(particles)), particles)
    return figure


def draw_scatters(figure: Figure, grid: GridSpecBase, particles: Mapping[str, np.ndarray]) -> None:
    """One panel per method in the cells of `grid`."""
    for i, (name, points) in enumerate(particles.items()):
        axes = figure.add_subplot(grid[i])
        draw_density(axes, Funnel(2))
        points = points[:: max(len(points) // MAX_POINTS, 1)]
        axes.scatter(points[:, 1], points[:, 0], s=13, color=COLOURS[name], linewidths=0, alpha=0.9)
        axes.set_title(name, color=COLOURS[name], fontweight="bold")
        axes.set_xlabel("$x_2$")
        if i == 0:
            axes.set_ylabel("$x_1$")
        else:
            axes.set_yticklabels([])


def draw_density(axes: Axes, funnel: Funnel) -> None:
    """Shades of the true log density in steps of one nat."""
    across, up = np.meshgrid(np.linspace(*ACROSS, 400), np.linspace(*UP, 400))
    points = jnp.asarray(np.stack([up.ravel(), across.ravel()], axis=1))
    values = np.asarray(jax.vmap(funnel.log_density)(points)).reshape(up.shape)
    depth = np.ceil(np.clip(values.max() - values, 0, DEPTH))
    # An image instead of contours, because an animation draws it again in every frame.
    axes.imshow(
        -depth,
        extent=(*ACROSS, *UP),
        origin="lower",
        aspect="auto",
        cmap="Greys",
        vmax=DEPTH,
    )
    axes.set(xlim=ACROSS, ylim=UP)


def animate(frames: list[Frame], funnel: Funnel, path: Path) -> None:
    """The paper's NVGD with arrows of the field it has learned (its Figure 1).

    Lengths are proportional to |f| throughout the film, up to LONGEST.
    """
    figure, axes = plt.subplots(figsize=(4.6, 4.8), dpi=80, layout="constrained")
    draw_density(axes, funnel)
    field = _quiver(axes, np.asarray(arrow_grid()), color="#a9b6c4")
    own = _quiver(axes, frames[0].particles, color=tint(COLOURS[PAPER], -0.5))
    key = f"|f| = {KEY} (cut at {LONGEST})"
    axes.quiverkey(own, 0.93, 0.06, KEY, key, labelpos="W", fontproperties={"size": 8})
    points = axes.scatter([], [], s=14, color=COLOURS[PAPER], linewidths=0, zorder=3)
    title = axes.set_title(_caption(0), fontsize=10)
    axes.set(xlabel="$x_2$", ylabel="$x_1$")
    figure.canvas.draw()
    # All frames have the same layout, which is computed once.
    figure.set_layout_engine("none")
    writer = PillowWriter(fps=11)
    with writer.saving(figure, str(path), dpi=80):
        # The last frame is held for twelve frames before the animation starts again.
        for frame in [*frames[:: -(-len(frames) // MAX_FRAMES)], *[frames[-1]] * 12]:
            field.set_UVC(*_cut(frame.grid_arrows).T[::-1])
            own.set_UVC(*_cut(frame.particle_arrows).T[::-1])
            own.set_offsets(frame.particles[:, ::-1])
            points.set_offsets(frame.particles[:, ::-1])
            title.set_text(_caption(int(frame.step)))
            writer.grab_frame()
    plt.close(figure)


def _caption(step: int) -> str:
    return f"{PAPER}: particles and learned field f, step {step}"


def _quiver(axes: Axes, points: np.ndarray, color: str) -> Quiver:
    """Arrows from the points, in the units of the axes."""
    still = np.zeros(len(points))
    return axes.quiver(
        *points.T[::-1],
        still,
        still,
        color=color,
        angles="xy",
        scale_units="xy",
        scale=1 / ARROW,
        width=0.004,
    )


def _cut(vectors: np.ndarray) -> np.ndarray:
    """Shorten vectors to LONGEST, since a few long ones at the start would cover the picture."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors * np.minimum(1.0, LONGEST / np.maximum(lengths, 1e-12))
