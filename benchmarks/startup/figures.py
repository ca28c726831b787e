"""Quality against processor seconds, one panel per posterior."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks.startup.budgets import median
from benchmarks.startup.tables import energy_ratio
from benchmarks.startup.times import AGAIN, COLD, KNOWN_SHAPE
from nvgd._support.files import write_atomically
from nvgd.posterior import palette
from nvgd.posterior.palette import tint

Record = Mapping[str, Any]

# NUTS of several packages has shades of one colour; markers tell them apart.
STYLES = {
    ("nvgd", COLD): ("nvgd.sample, cold", palette.NVGD, "o"),
    ("nvgd", KNOWN_SHAPE): ("nvgd.sample, known shape", palette.NVGD, "D"),
    ("nvgd", AGAIN): ("nvgd.sample, again", palette.NVGD, "^"),
    ("blackjax_nuts", COLD): ("BlackJAX NUTS", palette.NUTS, "s"),
    ("blackjax_meads", COLD): ("BlackJAX MEADS", palette.MEADS, "v"),
    ("numpyro_nuts", COLD): ("NumPyro NUTS", tint(palette.NUTS, 0.25), "P"),
    ("nutpie", COLD): ("nutpie, JAX log density", tint(palette.NUTS, 0.5), "X"),
    ("nutpie_pymc", COLD): ("nutpie, PyMC model", tint(palette.NUTS, 0.5), "*"),
    ("pymc_nuts", COLD): ("PyMC NUTS", tint(palette.NUTS, 0.25), "h"),
}
# Larger ratios are drawn here, with their value below.
MOST = 100.0
TICKS = [digit * 10.0**power for power in range(-2, 5) for digit in (1, 2, 5)]


def draw(times: Sequence[Record], path: Path) -> Path:
    """Filled: from the start of a process. Hollow: the second call in the same process."""
    names = list(dict.fromkeys(record["posterior"] for record in times))
    num_columns = min(len(names), 4)
    num_rows = math.ceil(len(names) / num_columns)
    size = (max(3.3 * num_columns, 7.0), 2.9 * num_rows + 1.3)
    figure, panels = plt.subplots(num_rows, num_columns, figsize=size, squeeze=False)
    for axes in panels.flat[len(names) :]:
        axes.set_visible(False)
    seen: dict[tuple[str, str], None] = {}
    for axes, name in zip(panels.flat, names, strict=False):
        own = [record for record in times if record["posterior"] == name]
        for style in STYLES:
            if _point(axes, own, style):
                seen[style] = None
        _dressed(axes, f"{name}, d = {own[0]['dim']}")
    for axes in panels[:, 0]:
        axes.set_ylabel("energy distance / exact")
    for axes in panels[-1]:
        axes.set_xlabel("CPU seconds, compilation included")
    handles = [
        Line2D([], [], color=STYLES[style][1], marker=STYLES[style][2], linestyle="")
        for style in STYLES
        if style in seen
    ]
    labels = [STYLES[style][0] for style in STYLES if style in seen]
    handles.append(Line2D([], [], color="grey", marker="o", linestyle="", fillstyle="none"))
    labels.append("second call, same process")
    num_lines = math.ceil(len(labels) / (num_columns + 1))
    figure.legend(handles, labels, loc="lower center", ncols=num_columns + 1, frameon=False)
    figure.tight_layout(rect=(0, (0.1 + 0.24 * num_lines) / size[1], 1, 1))
    write_atomically(path, lambda file: figure.savefig(file, dpi=120))
    plt.close(figure)
    return path


def _point(axes: Axes, own: Sequence[Record], style: tuple[str, str]) -> bool:
    """Draw the points of a method; False if it has none."""
    method, state = style
    runs = [row for row in own if row["method"] == method and row["state"] == state]
    runs = [row for row in runs if "failure" not in row]
    if not runs or not math.isfinite(energy_ratio(runs)):
        return False
    _, colour, marker = STYLES[style]
    quality = min(energy_ratio(runs), MOST)
    cold = median(runs, "cpu_seconds")
    assert cold is not None
    # The states of one method are smaller and edged, so that none hides another.
    edge: dict[str, Any] = (
        {"markersize": 8} if state == COLD else {"markersize": 7, "markeredgecolor": "white"}
    )
    axes.plot([cold], [quality], color=colour, marker=marker, linestyle="", **edge)
    if energy_ratio(runs) > MOST:
        text = f"↑ {energy_ratio(runs):.0e}"
        axes.annotate(text, (cold, quality), (4, -16), textcoords="offset points", ha="right")
    warm = median(runs, "second_cpu_seconds")
    if state == COLD and warm is not None:
        axes.plot([warm, cold], [quality] * 2, color=colour, linewidth=0.6, alpha=0.6)
        axes.plot([warm], [quality], color=colour, marker=marker, fillstyle="none", linestyle="")
    return True


def _dressed(axes: Axes, title: str) -> None:
    axes.set(xscale="log", yscale="log")
    axes.set_title(title, fontsize=10)
    axes.axhline(1.0, color="grey", linestyle=":", linewidth=1)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.5), max(high, 2.0))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator(TICKS))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.2)
