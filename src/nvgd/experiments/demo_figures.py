"""The demo's pictures."""

from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver

from nvgd.densities import Funnel

if TYPE_CHECKING:
    from nvgd.experiments.demo import Frame, MethodResult

# x₂ across, x₁ up: the neck of the funnel at the bottom.
ACROSS, UP = (-13.0, 13.0), (-9.5, 9.0)
# How many nats below its maximum the target is still shown.
DEPTH = 10
COLOURS = {"NVGD": "#d1495b", "SVGD": "#2e6f95", "ULA ε": "#e9a23b", "ULA ε/5": "#7a9e7e"}


def _arrow_grid() -> jax.Array:
    """Points of a grid where the target has mass: elsewhere the witness only extrapolates."""
    across, up = np.meshgrid(np.linspace(-12, 12, 21), np.linspace(-8.5, 8, 18))
    points = jnp.asarray(np.stack([up.ravel(), across.ravel()], axis=1))
    values = jax.vmap(Funnel(2).log_density)(points)
    return points[values > values.max() - DEPTH]


ARROW_GRID = _arrow_grid()


def draw(results: dict[str, "MethodResult"], exact: "MethodResult", funnel: Funnel) -> Figure:
    """Scatter of each method's first run over the density; MMD² curves with bands below."""
    figure = plt.figure(figsize=(11, 7.2), layout="constrained")
    rows = figure.add_gridspec(2, 1, height_ratios=[1.25, 1])
    top = rows[0].subgridspec(1, len(results))
    for i, (name, result) in enumerate(results.items()):
        axes = figure.add_subplot(top[i])
        draw_density(axes, funnel)
        particles = result.particles[0]
        axes.scatter(
            particles[:, 1], particles[:, 0], s=13, color=COLOURS[name], linewidths=0, alpha=0.9
        )
        axes.set_title(name, color=COLOURS[name], fontweight="bold")
        axes.set_xlabel("$x_2$")
        if i == 0:
            axes.set_ylabel("$x_1$")
        else:
            axes.set_yticklabels([])
    _draw_curves(figure.add_subplot(rows[1]), results, exact)
    return figure


def _draw_curves(axes: Axes, results: dict[str, "MethodResult"], exact: "MethodResult") -> None:
    for name, result in results.items():
        mean, deviation = result.mmd_curves.mean(axis=0), result.mmd_curves.std(axis=0)
        axes.plot(result.steps, mean, color=COLOURS[name], label=name, linewidth=1.8)
        axes.fill_between(
            result.steps, mean - deviation, mean + deviation, color=COLOURS[name], alpha=0.2, lw=0
        )
    level = exact.mmd.mean()
    axes.axhline(level, color="0.35", linestyle="--", linewidth=1.2, label="exact sample")
    axes.axhspan(level - exact.mmd.std(), level + exact.mmd.std(), color="0.35", alpha=0.08, lw=0)
    last = max(result.steps[-1] for result in results.values())
    # The start, far above everything else, would flatten the rest.
    late = [
        result.mmd_curves.mean(axis=0)[len(result.steps) // 20 :] for result in results.values()
    ]
    highest = max(curve.max() for curve in late)
    axes.set(xlim=(0, last), ylim=(-0.012, 1.05 * highest), xlabel="step", ylabel="MMD²")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=len(results) + 1, loc="upper right")


def draw_density(axes: Axes, funnel: Funnel) -> None:
    """Shades of the true log density in steps of one nat."""
    across, up = np.meshgrid(np.linspace(*ACROSS, 400), np.linspace(*UP, 400))
    points = jnp.asarray(np.stack([up.ravel(), across.ravel()], axis=1))
    values = np.asarray(jax.vmap(funnel.log_density)(points)).reshape(up.shape)
    depth = np.ceil(np.clip(values.max() - values, 0, DEPTH))
    # A picture, not contours: an animation draws it again in every frame.
    axes.imshow(
        -depth,
        extent=(*ACROSS, *UP),
        origin="lower",
        aspect="auto",
        cmap="Greys",
        vmax=DEPTH,
    )
    axes.set(xlim=ACROSS, ylim=UP)


def animate(frames: list["Frame"], funnel: Funnel, path: Path) -> None:
    """NVGD's particles along the arrows of the field it has learned (the paper's Figure 1)."""
    figure, axes = plt.subplots(figsize=(4.6, 4.6), dpi=80, layout="constrained")
    draw_density(axes, funnel)
    grid = np.asarray(ARROW_GRID)
    field = _quiver(axes, grid, color="#9db8cc")
    own = _quiver(axes, frames[0].particles, color="#22313f")
    # One unit for the whole film: arrows shrink as the particles settle.
    unit = float(np.median([np.linalg.norm(f.particle_arrows, axis=1) for f in frames]))
    points = axes.scatter([], [], s=14, color=COLOURS["NVGD"], linewidths=0, zorder=3)
    title = axes.set_title("NVGD, step 0", fontsize=11)
    axes.set(xlabel="$x_2$", ylabel="$x_1$")
    figure.canvas.draw()
    # Lay out once: the frames differ in nothing that could change it.
    figure.set_layout_engine("none")
    writer = PillowWriter(fps=11)
    with writer.saving(figure, str(path), dpi=80):
        # The last picture is held for a while before the loop starts again.
        for frame in [*frames, *[frames[-1]] * 12]:
            field.set_UVC(*_compressed(frame.grid_arrows, unit).T[::-1])
            own.set_UVC(*_compressed(frame.particle_arrows, unit).T[::-1])
            own.set_offsets(frame.particles[:, ::-1])
            points.set_offsets(frame.particles[:, ::-1])
            title.set_text(f"NVGD, step {frame.step}")
            writer.grab_frame()
    plt.close(figure)


def _quiver(axes: Axes, points: np.ndarray, color: str) -> Quiver:
    still = np.zeros(len(points))
    return axes.quiver(*points.T[::-1], still, still, color=color, scale=18, width=0.004)


def _compressed(vectors: np.ndarray, unit: float) -> np.ndarray:
    """Directions with lengths |v|/(|v| + unit): the field spans orders of magnitude."""
    return vectors / (np.linalg.norm(vectors, axis=1, keepdims=True) + unit)
