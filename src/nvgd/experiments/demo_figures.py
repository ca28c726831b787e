"""The demo's pictures."""

from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nvgd.densities import Funnel

if TYPE_CHECKING:
    from nvgd.experiments.demo import Frame, MethodResult

# x₂ across, x₁ up: the neck of the funnel at the bottom.
ACROSS, UP = (-13.0, 13.0), (-9.5, 9.0)
COLOURS = {"NVGD": "#d1495b", "SVGD": "#2e6f95", "ULA ε": "#e9a23b", "ULA ε/5": "#7a9e7e"}
DENSITY_COLOURS = "Greys"

_across, _up = np.meshgrid(np.linspace(-12, 12, 17), np.linspace(-8.5, 8, 15))
ARROW_GRID = jnp.asarray(np.stack([_up.ravel(), _across.ravel()], axis=1))


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
    """Filled contours of the true log density."""
    across, up = np.meshgrid(np.linspace(*ACROSS, 240), np.linspace(*UP, 240))
    points = jnp.asarray(np.stack([up.ravel(), across.ravel()], axis=1))
    values = np.asarray(jax.vmap(funnel.log_density)(points)).reshape(up.shape)
    levels = values.max() - np.array([60, 20, 10, 7, 5, 3.5, 2.5, 1.5, 0.7, 0])
    axes.contourf(across, up, values, levels=levels, cmap=DENSITY_COLOURS, alpha=0.75)
    axes.set(xlim=ACROSS, ylim=UP)


def animate(frames: list["Frame"], funnel: Funnel, path: Path) -> None:
    """NVGD's particles along the arrows of the field it has learned (the paper's Figure 1)."""
    figure, axes = plt.subplots(figsize=(4.6, 4.6), layout="constrained")
    draw_density(axes, funnel)
    grid = np.asarray(ARROW_GRID)
    unit = _unit_arrows(frames[0].arrows)
    arrows = axes.quiver(
        grid[:, 1],
        grid[:, 0],
        unit[:, 1],
        unit[:, 0],
        color="#2e6f95",
        alpha=0.75,
        scale=24,
        width=0.004,
    )
    points = axes.scatter([], [], s=14, color=COLOURS["NVGD"], linewidths=0, zorder=3)
    axes.set(xlabel="$x_2$", ylabel="$x_1$")

    def show(frame: "Frame") -> tuple:
        unit = _unit_arrows(frame.arrows)
        arrows.set_UVC(unit[:, 1], unit[:, 0])
        points.set_offsets(frame.particles[:, ::-1])
        axes.set_title(f"NVGD, step {frame.step}", fontsize=11)
        return points, arrows

    # Hold the last picture for a while before the loop starts again.
    shown = [*frames, *[frames[-1]] * 10]
    animation = FuncAnimation(figure, show, frames=shown, interval=90)
    animation.save(path, writer=PillowWriter(fps=11), dpi=80)
    plt.close(figure)


def _unit_arrows(vectors: np.ndarray) -> np.ndarray:
    """Directions with lengths compressed to (0, 1): the field spans orders of magnitude."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(length, 1e-12) * (length / (length + np.median(length) + 1e-12))
