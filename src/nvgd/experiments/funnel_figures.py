"""Pictures of the two-dimensional funnel."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver

from nvgd.densities import Funnel
from nvgd.experiments.base import PAPER
from nvgd.experiments.figures import COLOURS, band, curve, mark_exact
from nvgd.flow import FlowState
from nvgd.witnesses import Witness

if TYPE_CHECKING:
    from nvgd.experiments.base import Arrays, Rows
    from nvgd.experiments.funnel import FunnelExperiment

# x₂ across, x₁ up: the neck of the funnel at the bottom.
ACROSS, UP = (-13.0, 13.0), (-9.5, 9.0)
# A film of more pictures than this is a large file that shows no more.
MAX_FRAMES = 62
# How many nats below its maximum the target is still shown.
DEPTH = 10


def _arrow_grid() -> jax.Array:
    """Points of a grid where the target has mass: elsewhere the witness only extrapolates."""
    across, up = np.meshgrid(np.linspace(-12, 12, 21), np.linspace(-8.5, 8, 18))
    points = jnp.asarray(np.stack([up.ravel(), across.ravel()], axis=1))
    values = jax.vmap(Funnel(2).log_density)(points)
    return points[values > values.max() - DEPTH]


ARROW_GRID = _arrow_grid()


class Frame(NamedTuple):
    """A moment of the paper's NVGD, with its learned field at the particles and on a grid."""

    step: int
    particles: np.ndarray
    particle_arrows: np.ndarray
    grid_arrows: np.ndarray


@eqx.filter_jit
def _field(witness: Witness, points: jax.Array) -> jax.Array:
    return jax.vmap(witness)(points)


def film(state: FlowState) -> Frame:
    """A frame of the present state."""
    witness = state.direction.witness
    shots = (state.particles, _field(witness, state.particles), _field(witness, ARROW_GRID))
    return Frame(int(state.step), *(np.asarray(shot) for shot in shots))


def curves(experiment: "FunnelExperiment", rows: "Rows") -> Figure:
    """All measures over steps, mean and standard deviation over runs (the paper's Figure 3)."""
    from nvgd.experiments.funnel import EXACT, MEASURES, SEQUENTIAL

    figure, panels = plt.subplots(1, 3, figsize=(13, 3.9), layout="constrained")
    for axes, (name, label) in zip(panels, MEASURES.items(), strict=True):
        late = []
        for method in experiment.flows():
            steps, values = curve(rows, method, name)
            band(axes, steps, values, COLOURS[method], method)
            # The start, far above everything else, would flatten the rest; so would the few
            # states that one chain has kept early.
            if method != SEQUENTIAL:
                late.append(values.mean(axis=0)[len(steps) // 20 :].max())
        _, exact = curve(rows, EXACT, name)
        mark_exact(axes, exact[0])
        low = -0.02 if name == "mmd" else 0
        axes.set(
            xlabel="step",
            ylabel=label,
            xlim=(0, experiment.num_steps),
            ylim=(low, 1.05 * max(late)),
        )
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False)
    return figure


def scatter(experiment: "FunnelExperiment", arrays: "Arrays") -> Figure:
    """The first run of every method over the true density (the paper's Figure 4)."""
    methods = list(experiment.flows())
    figure = plt.figure(figsize=(2.8 * len(methods), 4), layout="constrained")
    particles = [arrays[f"{method}/0/particles"] for method in methods]
    draw_scatters(figure, figure.add_gridspec(1, len(methods)), methods, particles)
    return figure


def draw_scatters(figure: Figure, grid, methods: Sequence[str], particles: Sequence) -> None:
    """One panel a method in the cells of `grid`; of long chains every so many-th state."""
    for i, (name, points) in enumerate(zip(methods, particles, strict=True)):
        axes = figure.add_subplot(grid[i])
        draw_density(axes, Funnel(2))
        points = points[:: max(len(points) // 100, 1)]
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


def animate(frames: list[Frame], funnel: Funnel, path: Path) -> None:
    """The paper's NVGD along the arrows of the field it has learned (its Figure 1)."""
    figure, axes = plt.subplots(figsize=(4.6, 4.6), dpi=80, layout="constrained")
    draw_density(axes, funnel)
    grid = np.asarray(ARROW_GRID)
    field = _quiver(axes, grid, color="#9db8cc")
    own = _quiver(axes, frames[0].particles, color="#22313f")
    # One unit for the whole film: arrows shrink as the particles settle.
    unit = float(np.median([np.linalg.norm(f.particle_arrows, axis=1) for f in frames]))
    points = axes.scatter([], [], s=14, color=COLOURS[PAPER], linewidths=0, zorder=3)
    title = axes.set_title(f"{PAPER}, step 0", fontsize=11)
    axes.set(xlabel="$x_2$", ylabel="$x_1$")
    figure.canvas.draw()
    # Lay out once: the frames differ in nothing that could change it.
    figure.set_layout_engine("none")
    writer = PillowWriter(fps=11)
    with writer.saving(figure, str(path), dpi=80):
        # The last picture is held for a while before the loop starts again.
        for frame in [*frames[:: -(-len(frames) // MAX_FRAMES)], *[frames[-1]] * 12]:
            field.set_UVC(*_compressed(frame.grid_arrows, unit).T[::-1])
            own.set_UVC(*_compressed(frame.particle_arrows, unit).T[::-1])
            own.set_offsets(frame.particles[:, ::-1])
            points.set_offsets(frame.particles[:, ::-1])
            title.set_text(f"{PAPER}, step {frame.step}")
            writer.grab_frame()
    plt.close(figure)


def _quiver(axes: Axes, points: np.ndarray, color: str) -> Quiver:
    still = np.zeros(len(points))
    return axes.quiver(*points.T[::-1], still, still, color=color, scale=18, width=0.004)


def _compressed(vectors: np.ndarray, unit: float) -> np.ndarray:
    """Directions with lengths |v|/(|v| + unit): the field spans orders of magnitude."""
    return vectors / (np.linalg.norm(vectors, axis=1, keepdims=True) + unit)
