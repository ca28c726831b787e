"""The results in Markdown."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.startup.budgets import median, ratios
from benchmarks.startup.programs import PHASES
from benchmarks.startup.times import AGAIN, COLD, KNOWN_SHAPE
from nvgd._support.tables import Row, markdown

Record = Mapping[str, Any]

# Programs that have a line of their own.
NUM_PROGRAMS = 10


def times_table(times: Sequence[Record], methods: Sequence[str]) -> str:
    """Tables of time and of quality: one row per posterior, one column per method."""
    ratio_of = {name: f"{ratio:.2f}" for name, ratio in ratios(times).items()}
    tables = [
        _by_method(times, methods, _seconds, {"nvgd / BlackJAX": ratio_of}),
        "Processor seconds from the start of a process to its posterior, imports and compilation "
        "included / of a second call in the same process. Medians over seeds.",
        _by_method(times, methods, _energy),
        "Energy distance of 256 draws, as a multiple of that of exact draws.",
        _by_method(times, methods, _widths),
        "Smallest and largest ratio of a standard deviation to the true one.",
    ]
    return "\n\n".join(tables)


def _by_method(
    times: Sequence[Record],
    methods: Sequence[str],
    cell: Callable[[Sequence[Record]], str],
    further: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """A table of cells made from the finished runs; `further` columns, by posterior, come first."""
    further = further or {}
    rows = [("posterior", "d", *further, *(name.replace("_", " ") for name in methods))]
    for name, own in _by_posterior(times).items():
        cells = []
        for method in methods:
            runs = [row for row in own if row["method"] == method and row["state"] == COLD]
            finished = [run for run in runs if "failure" not in run]
            cells.append(cell(finished) if finished else "failed" if runs else "")
        others = [column.get(name, "") for column in further.values()]
        rows.append((name, str(own[0]["dim"]), *others, *cells))
    return markdown(rows)


def _seconds(runs: Sequence[Record]) -> str:
    return f"{median(runs, 'cpu_seconds'):.1f} / {median(runs, 'second_cpu_seconds'):.2g}"


def _energy(runs: Sequence[Record]) -> str:
    ratio = energy_ratio(runs)
    return f"{ratio:.3g}" if np.isfinite(ratio) else "diverged"


def _widths(runs: Sequence[Record]) -> str:
    smallest = min(min(filter(None, run["smallest_sd_ratio"]), default=0.0) for run in runs)
    largest = max(max(filter(None, run["largest_sd_ratio"]), default=0.0) for run in runs)
    return f"{smallest:.2f}–{largest:.3g}"


def energy_ratio(runs: Sequence[Record]) -> float:
    """Median over seeds and calls; infinite if most of them diverged."""
    values = [value for run in runs for value in run["energy_ratio"]]
    return float(np.median([np.inf if value is None else value for value in values]))


def states_table(times: Sequence[Record]) -> str:
    """What nvgd's time consists of, by the state of its cache."""
    head = ("posterior", "d", "import", "cold", "known shape", "again")
    rows: list[Row] = [(*head, "second call", "peak GB")]
    for name, every in _by_posterior(times).items():
        own = [row for row in every if row["method"] == "nvgd"]
        if not own:
            continue
        first = [median(own, "first_cpu_seconds", state=s) for s in (COLD, KNOWN_SHAPE, AGAIN)]
        warm = median(own, "second_cpu_seconds")
        peak = median(own, "peak_gigabytes", state=COLD)
        values = [median(own, "import_cpu_seconds"), *first, warm, peak]
        cells = ["" if value is None else f"{value:.2f}" for value in values]
        rows.append((name, str(own[0]["dim"]), *cells))
    return (
        f"{markdown(rows)}\n\nProcessor seconds of `nvgd.sample`: the import, the first call with "
        "each state of the cache, and a second call; peak memory with an empty cache."
    )


def _by_posterior(times: Sequence[Record]) -> dict[str, list[Record]]:
    names = dict.fromkeys(row["posterior"] for row in times)
    return {name: [row for row in times if row["posterior"] == name] for name in names}


def steps_table(steps: Sequence[Record]) -> str:
    """Processor milliseconds per step."""
    rows: list[Row] = [("target", "d", "flow step", "correction", "256 gradients")]
    for row in steps:
        cells = [f"{row[f'{part}_cpu_ms']:.2g}" for part in ("flow", "corrections", "gradient")]
        rows.append((row["target"], str(row["dim"]), *cells))
    return f"{markdown(rows)}\n\nProcessor milliseconds."


def programs_table(record: Record) -> str:
    """The programs that take longest to compile, and the sum of the others."""
    phases = list(PHASES.values())
    programs = record["programs"]
    rows = [("program", *phases, "all")]
    rows += [_costs(row["program"], [row], phases) for row in programs[:NUM_PROGRAMS]]
    others = programs[NUM_PROGRAMS:]
    rows.append(_costs(f"{len(others)} others", others, phases))
    rows.append(_costs("all", programs, phases))
    beyond = record["first_beyond_second_cpu_seconds"]
    return (
        f"{markdown(rows)}\n\nProcessor seconds of `{record['flow']}` on {record['target']}, cache "
        f"empty. The first call took {beyond:.1f} CPU s more than the second."
    )


def _costs(name: str, programs: Sequence[Record], phases: Sequence[str]) -> tuple[str, ...]:
    sums = [sum(row[phase] for row in programs) for phase in phases]
    return (name, *(f"{seconds:.2f}" for seconds in (*sums, sum(sums))))
