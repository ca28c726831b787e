"""A figure of a run's history: the quantities that change, by step and stage."""

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from nvgd._support.errors import InputError
from nvgd.flow.stage import StageRecord
from nvgd.posterior.palette import REFERENCE

# Name in the history → label of its axis, and the kind of its scale: "share" runs from 0 to 1,
# "log" is for positive lengths, "signed" for quantities that fall by orders of magnitude to zero.
QUANTITIES = {
    "log_density": ("mean log density", "level"),
    "stein_discrepancy": ("Stein discrepancy\n(held-out particles)", "signed"),
    "step_norm": ("rms step length", "log"),
    "acceptance": ("share of moves\naccepted", "share"),
    "jump_acceptance": ("share of jumps\naccepted", "share"),
    "network_weight": ("weight of\nthe network", "share"),
    "share_capped": ("share of steps\ncapped", "share"),
    "share_noise": ("share of noise\nin velocities", "share"),
    "bandwidth": ("bandwidth of\nthe kernel", "level"),
    "inner_steps": ("training steps\nof the network", "level"),
    "num_rescued": ("particles\nreborn", "level"),
    "num_rows": ("data rows\nper step", "level"),
}
# Cumulative, hence always the same straight line.
NOT_SHOWN = ("num_gradients",)
# Points of the smooth curve that is drawn over a noisy one.
NUM_SMOOTH = 120
# A quantity falls far if it spans this many times the noise of the second half of the run.
FAR = 30.0


class Stage(NamedTuple):
    """Successive stages of one kind: the steps after `start`, up to `end`."""

    kind: str
    start: int
    end: int


class Curve(NamedTuple):
    """A quantity at the steps at which it was measured."""

    steps: Float[np.ndarray, " k"]
    values: Float[np.ndarray, " k"]

    def within(self, stage: Stage) -> "Curve":
        """The part that belongs to a stage; the start of the run belongs to the first one."""
        first = stage.start if stage.start else -1
        is_inside = (self.steps > first) & (self.steps <= stage.end)
        return Curve(self.steps[is_inside], self.values[is_inside])


def history(
    recorded: Mapping[str, np.ndarray],
    metrics: Mapping[str, np.ndarray],
    stages: Sequence[StageRecord] = (),
    *,
    colour: str = REFERENCE,
    narrow: bool = False,
) -> Figure:
    """Every recorded quantity with more than two values, and user metrics, over the steps.

    Stages are drawn side by side, each with its own axis of steps, because a flow is often much
    shorter than the corrections after it. The upper rows show quantities that all stages measure,
    the lower rows those of single stages. Quantities with one or two values are listed below.
    """
    if not recorded:
        raise InputError("there is no history to plot: these draws were not made by a run.")
    columns = merged_stages(stages, len(next(iter(recorded.values()))))
    curves = _curves(recorded, metrics, columns)
    shown = {name: curve for name, curve in curves.items() if _is_worth_a_panel(curve)} or curves
    rows = _rows(shown, columns)
    # Leave room between the columns for the names of the quantities.
    widths = [1.0 if stage.kind == "flow" else 1.4 for stage in columns]
    size = (3.9 if narrow else 7.4, 1.4 * len(rows) + 0.7)
    figure = Figure(figsize=size, layout="constrained")
    if not rows:
        figure.suptitle("nothing finite was recorded", fontsize=9)
        return figure
    grid = figure.add_gridspec(len(rows), len(columns), width_ratios=widths)
    for i, row in enumerate(rows):
        first: Axes | None = None
        for j, (name, stage) in enumerate(zip(row, columns, strict=True)):
            if name is None:
                continue
            is_shared = first is not None and name == row[0]
            axes = figure.add_subplot(grid[i, j], sharey=first if is_shared else None)
            first = first or axes
            _draw_panel(axes, name, shown[name], stage, colour, is_shared, narrow)
            if j:
                axes.axvspan(stage.start, stage.end, color="0.5", alpha=0.1, linewidth=0, zorder=0)
            if i == 0 and len(columns) > 1:
                axes.set_title(stage.kind, fontsize=9, color="0.3")
            if i == len(rows) - 1 or rows[i + 1][j] is None:
                axes.set_xlabel("step", fontsize=8)
    constant = _constant(curves, shown)
    if constant:
        figure.supxlabel(textwrap.fill(constant, 60 if narrow else 120), fontsize=7)
    return figure


def merged_stages(stages: Sequence[StageRecord], num_steps: int) -> list[Stage]:
    """The stages of a run; successive ones of a kind are one."""
    merged: list[Stage] = []
    start = 0
    for kind, until in stages:
        until = min(until, num_steps)
        if until <= start:
            continue
        if merged and merged[-1].kind == kind:
            merged[-1] = merged[-1]._replace(end=until)
        else:
            merged.append(Stage(kind, start, until))
        start = until
    return merged or [Stage("flow", 0, num_steps)]


def _curves(
    recorded: Mapping[str, np.ndarray], metrics: Mapping[str, np.ndarray], stages: Sequence[Stage]
) -> dict[str, Curve]:
    """All quantities, at the steps at which they were measured, in the order of the panels."""
    curves = {
        name: _measured(values, stages)
        for name, values in recorded.items()
        if name not in NOT_SHOWN
    }
    steps = np.asarray(metrics.get("step", ()), np.float64)
    curves |= {
        name: Curve(steps, np.asarray(values, np.float64))
        for name, values in metrics.items()
        if name != "step"
    }
    order = {name: i for i, name in enumerate(QUANTITIES)}
    found = {}
    for name in sorted(curves, key=lambda name: order.get(name, len(order))):
        is_finite = np.isfinite(curves[name].values)
        if is_finite.any():
            found[name] = Curve(*(part[is_finite] for part in curves[name]))
    return found


def _measured(values: np.ndarray, stages: Sequence[Stage]) -> Curve:
    """The entries that were measured; other stages hold NaN, or 0 for counts."""
    is_count = np.issubdtype(values.dtype, np.integer) and values.any()
    keep = np.ones(len(values), bool)
    for _, start, end in stages:
        if is_count and not values[start:end].any():
            keep[start:end] = False
    steps = np.arange(1, len(values) + 1, dtype=np.float64)
    return Curve(steps[keep], np.asarray(values, np.float64)[keep])


def _rows(curves: Mapping[str, Curve], stages: Sequence[Stage]) -> list[tuple[str | None, ...]]:
    """Names of the quantities in the panels: row by row, one entry per stage."""
    measured = {
        name: [len(curve.within(stage).values) > 0 for stage in stages]
        for name, curve in curves.items()
    }
    of_all = [name for name, flags in measured.items() if all(flags)]
    of_one = [
        [name for name, flags in measured.items() if flags[j] and not all(flags)]
        for j in range(len(stages))
    ]
    return [*((name,) * len(stages) for name in of_all), *itertools.zip_longest(*of_one)]


def _is_worth_a_panel(curve: Curve) -> bool:
    """Not if it is constant or switches between two values, such as training or no training."""
    return len(np.unique(curve.values)) > (1 if len(curve.values) == 2 else 2)


def _draw_panel(
    axes: Axes,
    name: str,
    curve: Curve,
    stage: Stage,
    colour: str,
    is_shared: bool,
    narrow: bool,
) -> None:
    """A quantity in one stage: the values, pale if there are many, with running medians."""
    label, kind = QUANTITIES.get(name, (name.replace("_", " "), "level"))
    if is_shared:
        axes.tick_params(labelleft=False)
    else:
        _set_scale(axes, curve, kind)
        axes.set_ylabel(label, fontsize=7 if narrow else 8)
    part = curve.within(stage)
    smooth = _smooth(part)
    if smooth is part:
        axes.plot(*part, color=colour, linewidth=1.3)
    else:
        axes.plot(*part, color=colour, linewidth=0.6, alpha=0.3)
        axes.plot(*smooth, color=colour, linewidth=1.5)
    axes.set_xlim(stage.start, stage.end)
    axes.xaxis.set_major_locator(MaxNLocator(3 if narrow else 5, integer=True))
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def _smooth(curve: Curve) -> Curve:
    """Running medians; the curve itself if it has few points."""
    window = -(-len(curve.values) // NUM_SMOOTH)
    if window < 4:
        return curve
    whole = len(curve.values) // window * window
    return Curve(*(np.median(part[:whole].reshape(-1, window), axis=1) for part in curve))


def _set_scale(axes: Axes, curve: Curve, kind: str) -> None:
    """Choose a scale on which both the start and the end of the run are visible."""
    values = curve.values
    low, high = float(values.min()), float(values.max())
    late = values[len(values) // 2 :]
    noise = float(np.subtract(*np.quantile(late, (0.9, 0.1))))
    falls_far = high - low > FAR * max(noise, np.finfo(np.float32).tiny)
    if kind == "signed":
        axes.axhline(0, color="0.6", linewidth=0.8)
    if kind == "share" and low >= 0 and high <= 1:
        # A share that stays small is shown from zero to its largest value.
        axes.set_ylim(-0.03 * max(high, 0.05), 1.03 if high > 0.25 else 1.15 * high)
    elif kind == "log" and high > 5 * np.min(values, initial=high, where=values > 0):
        # Steps at which nothing moved leave a gap.
        axes.set_yscale("log", nonpositive="mask")
        # An axis of one decade would have one label, or one at every digit.
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    elif kind == "signed" and falls_far:
        smooth = _smooth(curve).values
        _set_symlog(axes, min(float(smooth.min()), 0.0), float(smooth.max()), noise)
    elif kind == "level" and falls_far and noise > 0:
        # The start, or single steps, are far from the rest of the curve: fit the axis to the rest.
        rest = _smooth(Curve(*(part[len(values) // 50 :] for part in curve))).values
        floor, top = float(rest.min()), float(rest.max())
        margin = 0.06 * (top - floor)
        axes.set_ylim(floor - margin, top + margin)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(4))


def _set_symlog(axes: Axes, low: float, high: float, noise: float) -> None:
    """Linear within the noise of the run's end, logarithmic beyond, with few ticks."""
    unit = 10.0 ** np.ceil(np.log10(max(noise, np.finfo(np.float32).tiny)))
    axes.set_yscale("symlog", linthresh=unit, linscale=0.7)
    axes.set_ylim(2 * low - 0.5 * unit, 2 * high + 0.5 * unit)
    ticks = [0.0]
    for sign, end in ((1, high), (-1, -low)):
        decades = np.arange(np.log10(unit), np.log10(max(end, unit)) + 1e-9)
        # From the outside in, so that the outermost decade has a label.
        kept = decades[::-1][:: max(-(-len(decades) // 2), 1)]
        ticks += [sign * 10.0**decade for decade in kept]
    axes.set_yticks([tick for tick in ticks if low <= tick <= high])
    axes.yaxis.set_minor_locator(NullLocator())


def _constant(curves: Mapping[str, Curve], shown: Mapping[str, Curve]) -> str:
    """A line about the quantities that have one or two values."""
    listed = []
    for name in [name for name in curves if name not in shown]:
        label, _ = QUANTITIES.get(name, (name.replace("_", " "), ""))
        values = " or ".join(f"{value:.4g}" for value in np.unique(curves[name].values))
        listed.append(f"{label.replace(chr(10), ' ')} {values}")
    return f"at every step: {', '.join(listed)}" if listed else ""
