"""The results in Markdown."""

from collections.abc import Mapping, Sequence
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
    """One row per posterior, one column per method."""
    rows = [("posterior", "d", *methods, "nvgd / BlackJAX NUTS")]
    by_posterior = ratios(times)
    for name, own in _by_posterior(times).items():
        cells = [
            _cell([row for row in own if row["method"] == method and row["state"] == COLD])
            for method in methods
        ]
        ratio = f"{by_posterior[name]:.2f}" if name in by_posterior else ""
        rows.append((name, str(own[0]["dim"]), *cells, ratio))
    return (
        f"{markdown(rows)}\n\nA cell: processor seconds from the start of a process to its "
        "posterior, imports and compilation included / of a second call in the same process / "
        "energy distance of 256 draws as a multiple of that of exact draws (smallest and largest "
        "ratio of a standard deviation to the true one). Medians over seeds."
    )


def _cell(runs: Sequence[Record]) -> str:
    finished = [run for run in runs if "failure" not in run]
    if not finished:
        return "failed" if runs else ""
    cold, warm = median(finished, "cpu_seconds"), median(finished, "second_cpu_seconds")
    return f"{cold:.1f} / {warm:.2g} / {_quality(finished)}"


def _quality(runs: Sequence[Record]) -> str:
    ratio = energy_ratio(runs)
    if not np.isfinite(ratio):
        return "diverged"
    smallest = min(min(filter(None, run["smallest_sd_ratio"]), default=0.0) for run in runs)
    largest = max(max(filter(None, run["largest_sd_ratio"]), default=0.0) for run in runs)
    return f"{ratio:.3g} ({smallest:.2g} to {largest:.3g})"


def energy_ratio(runs: Sequence[Record]) -> float:
    """Median over seeds and calls; infinite if most of them diverged."""
    values = [value for run in runs for value in run["energy_ratio"]]
    return float(np.median([np.inf if value is None else value for value in values]))


def states_table(times: Sequence[Record]) -> str:
    """What nvgd's time consists of, by the state of its cache."""
    head = ("posterior", "d", "particles × steps", "import", "cold", "known shape", "again")
    rows: list[Row] = [(*head, "second call", "peak GB")]
    sizes = {"nvgd": "256 × 2000", "nvgd_bare": "bare call"}
    chosen = [
        (name, size, [row for row in own if row["method"] == method])
        for name, own in _by_posterior(times).items()
        for method, size in sizes.items()
    ]
    for name, size, own in chosen:
        if not own:
            continue
        first = [median(own, "first_cpu_seconds", state=s) for s in (COLD, KNOWN_SHAPE, AGAIN)]
        warm = median(own, "second_cpu_seconds")
        peak = median(own, "peak_gigabytes", state=COLD)
        values = [median(own, "import_cpu_seconds"), *first, warm, peak]
        cells = ["" if value is None else f"{value:.2f}" for value in values]
        rows.append((name, str(own[0]["dim"]), size, *cells))
    return (
        f"{markdown(rows)}\n\nProcessor seconds of `nvgd.sample`: the import, the first call with "
        "each state of the cache, and a second call; peak memory with an empty cache."
    )


def _by_posterior(times: Sequence[Record]) -> dict[str, list[Record]]:
    names = dict.fromkeys(row["posterior"] for row in times)
    return {name: [row for row in times if row["posterior"] == name] for name in names}


def steps_table(steps: Sequence[Record]) -> str:
    """Milliseconds per step, processor and wall."""
    rows: list[Row] = [("target", "d", "flow step", "correction", "256 gradients")]
    for row in steps:
        cells = [
            f"{row[f'{part}_cpu_ms']:.3g} ({row[f'{part}_wall_ms']:.3g})"
            for part in ("flow", "corrections", "gradient")
        ]
        rows.append((row["target"], str(row["dim"]), *cells))
    return f"{markdown(rows)}\n\nProcessor milliseconds, and in brackets wall milliseconds."


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
