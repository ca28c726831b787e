"""Log–log figures of the comparison, drawn from its records alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from nvgd._support.files import write_atomically
from nvgd.posterior import palette

COLOURS = {
    "nvgd.NVGD()": palette.NVGD,
    "nvgd.NVGD.paper": palette.NVGD_PAPER,
    "nvgd.SVGD": palette.SVGD,
    "nvgd.ULA": palette.LANGEVIN,
    "BlackJAX SVGD": palette.tint(palette.SVGD, -0.45),
    "NumPyro SteinVI": palette.STEINVI,
    "BlackJAX NUTS": palette.NUTS,
}


def draw(records: Sequence[dict[str, Any]], directory: Path) -> Path:
    """Energy distance against run time with compilation, one panel per target."""
    targets = list(dict.fromkeys(record["target"] for record in records))
    figure, panels = plt.subplots(1, len(targets), figsize=(4.4 * len(targets), 3.8), squeeze=False)
    for axes, target in zip(panels[0], targets, strict=True):
        own = [record for record in records if record["target"] == target]
        for record in own:
            points = [
                (record["compilation_seconds"] + t, e)
                for t, e in zip(record["seconds"], record["energy"], strict=True)
                if e < 1e8
            ]
            # A single point would make no line.
            marker = "o" if len(points) == 1 else None
            axes.plot(*zip(*points, strict=True), color=COLOURS[record["method"]], marker=marker)
        axes.axhline(own[0]["level"], color="black", linestyle=":", linewidth=1)
        axes.annotate(
            "level",
            (0.99, own[0]["level"]),
            (0, 2),
            fontsize=8,
            ha="right",
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
        )
        axes.set(
            xscale="log",
            yscale="log",
            title=target,
            xlabel="processor seconds, compilation included",
        )
        # An axis of less than a decade would have one label, or one at every digit.
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    panels[0][0].set_ylabel("energy distance")
    handles = [Line2D([], [], color=colour) for colour in COLOURS.values()]
    figure.legend(handles, list(COLOURS), loc="lower center", ncols=4, frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    return _saved(figure, directory / "time-to-accuracy.png")


def draw_scaling(rows: Sequence[dict[str, Any]], directory: Path) -> Path:
    """Time and memory per step against the number of particles."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.8))
    for axes, quantity, label in zip(
        panels,
        ("milliseconds", "megabytes"),
        ("processor milliseconds per step", "megabytes of the compiled step"),
        strict=True,
    ):
        for name in dict.fromkeys(row["method"] for row in rows):
            own = [row for row in rows if row["method"] == name]
            counts = [row["particles"] for row in own]
            values = [row[quantity] for row in own]
            axes.plot(counts, values, marker="o", markersize=4, color=COLOURS[name], label=name)
        axes.set(xscale="log", yscale="log", xlabel="particles", ylabel=label)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=5, frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    return _saved(figure, directory / "scaling.png")


def _saved(figure: Figure, path: Path) -> Path:
    write_atomically(path, lambda file: figure.savefig(file, dpi=110))
    plt.close(figure)
    return path
