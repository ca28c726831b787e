"""The gallery as one HTML page with the player of the report, and as a picture."""

import base64
import io
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from benchmarks.gallery.running import LANGEVIN, NVGD, SVGD, Film
from benchmarks.gallery.targets import TARGETS, Shown
from nvgd._support.tables import html_table
from nvgd.cli.report.document import PLAYER, embedded_json, resource, write_page
from nvgd.cli.report.film import pack_film
from nvgd.experiments.figures import save_figure
from nvgd.posterior import palette
from nvgd.posterior.palette import tint

COLOURS = {NVGD: palette.NVGD, SVGD: palette.SVGD, LANGEVIN: palette.LANGEVIN}
TITLE = "Particles on two-dimensional targets"
# Pixels of the picture of a density, and the grey that is visible on light and dark pages alike.
RESOLUTION = 160
GREY = (127, 140, 155)
# The density is shown down to this many nats below its maximum.
DEPTH = 8.0


class Entry(NamedTuple):
    """The runs of all methods on one target."""

    films: Mapping[str, Film]
    exact: float
    """Mean energy distance of exact samples of the same size."""


def write_gallery(
    entries: Mapping[str, Entry], path: Path, *, num_particles: int, num_steps: int
) -> None:
    """Write the page: a film per target and method, with a slider over the steps."""
    data = [
        {
            "name": name,
            "sentence": TARGETS[name].sentence,
            "background": _image(TARGETS[name]),
            "films": [_packed(film, TARGETS[name]) for film in entry.films.values()],
        }
        for name, entry in entries.items()
    ]
    methods = list(next(iter(entries.values())).films)
    tiles = "".join(
        f'<figure><figcaption style="color: var(--{name})">{name}</figcaption>'
        f'<canvas id="{name}" data-colour="--{name}"></canvas><p class="soft note"></p></figure>'
        for name in methods
    )
    buttons = "".join(
        f'<button type="button" data-target="{i}">{escape(name)}</button>'
        for i, name in enumerate(entries)
    )
    body = (
        '<p class="soft"><a href="../index.html">nvgd</a></p>'
        f"<h1>{TITLE}</h1>"
        f"<p>{num_particles} particles, {num_steps} steps, one gradient per particle and step. "
        "NVGD is the library's default and has nothing to tune; SVGD and Langevin dynamics are "
        "shown with the best of four step sizes, chosen by their distance from the truth.</p>"
        f'<div class="chooser" id="targets">{buttons}</div><p id="sentence"></p>'
        f'<div id="film"><div class="tiles">{tiles}</div>{PLAYER}</div>'
        "<h2>Energy distance of the returned particles from the target</h2>"
        f'<div class="scroll">{html_table(table(entries))}</div>'
        '<p class="soft">0 is perfect. Below the exact sample means: spread more evenly than '
        "independent draws. NVGD's corrections turn its particles into Markov chains; one "
        "state of every chain, chosen to spread evenly, is returned.</p>"
        '<p class="soft">Made by <code>python -m benchmarks.gallery</code>.</p>'
        + embedded_json("gallery", data)
    )
    write_page(
        path,
        TITLE,
        body,
        style=resource("page.css") + _own("gallery.css") + _colours(methods),
        script=resource("player.js") + _own("gallery.js"),
    )


def table(entries: Mapping[str, Entry]) -> list[list[str]]:
    """Energy distances of the returned particles, one row per target; the header first."""
    methods = list(next(iter(entries.values())).films)
    rows = [["", *methods, "exact sample"]]
    for name, entry in entries.items():
        cells = [f"{film.energy[-1]:.3f}" for film in entry.films.values()]
        rows.append([name, *cells, f"{entry.exact:.3f}"])
    return rows


def draw(entries: Mapping[str, Entry], path: Path) -> Path:
    """The returned particles of every method on every target."""
    methods = list(next(iter(entries.values())).films)
    size = (2.3 * len(entries), 2.45 * len(methods))
    figure, panels = plt.subplots(
        len(methods), len(entries), figsize=size, layout="constrained", squeeze=False
    )
    for column, (name, entry) in enumerate(entries.items()):
        shown = TARGETS[name]
        for row, method in enumerate(methods):
            axes, film = panels[row, column], entry.films[method]
            extent = (*shown.across, *shown.up)
            axes.imshow(_opacity(shown), extent=extent, aspect="auto", cmap="Greys", vmax=2.2)
            points = _oriented(film.positions[-1], shown)
            axes.scatter(*points.T, s=7, color=COLOURS[method], linewidths=0, alpha=0.85)
            axes.set(xlim=shown.across, ylim=shown.up, xticks=[], yticks=[])
            axes.set_xlabel(f"energy distance {film.energy[-1]:.3f}", fontsize=8)
            if row == 0:
                axes.set_title(f"{name}\n(exact sample {entry.exact:.3f})", fontsize=9)
            if column == 0:
                axes.set_ylabel(method, color=COLOURS[method], fontweight="bold", fontsize=11)
    return save_figure(figure, path)


def _packed(film: Film, shown: Shown) -> dict[str, Any]:
    captions = [
        f"{stage + ', ' if stage else ''}energy distance {energy:.3f}"
        for stage, energy in zip(film.stages, film.energy, strict=True)
    ]
    return pack_film(
        _oriented(film.positions, shown),
        film.steps,
        ["x₂", "x₁"] if shown.is_turned else ["x₁", "x₂"],
        captions=captions,
        limits=[shown.across, shown.up],
    )


def _oriented(positions: np.ndarray, shown: Shown) -> np.ndarray:
    return positions[..., ::-1] if shown.is_turned else positions


def _opacity(shown: Shown) -> np.ndarray:
    """The log density on a grid, first row on top, as numbers between 0 and 1."""
    across, up = np.meshgrid(
        np.linspace(*shown.across, RESOLUTION), np.linspace(*shown.up[::-1], RESOLUTION)
    )
    points = np.stack([across.ravel(), up.ravel()], axis=1)
    values = jax.vmap(shown.density.log_density)(jnp.asarray(_oriented(points, shown)))
    depth = np.asarray(values.max() - values).reshape(across.shape)
    return np.clip(1 - np.floor(depth) / DEPTH, 0, 1)


def _image(shown: Shown) -> str:
    opacity = (200 * _opacity(shown)).astype(np.uint8)
    grey = np.broadcast_to(np.array(GREY, np.uint8), (*opacity.shape, 3))
    buffer = io.BytesIO()
    Image.fromarray(np.concatenate([grey, opacity[..., None]], axis=2)).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _own(name: str) -> str:
    return files("benchmarks.gallery").joinpath(name).read_text(encoding="utf-8")


def _colours(methods: list[str]) -> str:
    """Variables of the style sheet: a colour per method, lighter on dark pages."""
    light = "".join(f"--{name}: {COLOURS[name]}; " for name in methods)
    dark = "".join(f"--{name}: {tint(COLOURS[name], 0.35)}; " for name in methods)
    return f":root {{ {light}}}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}\n"
