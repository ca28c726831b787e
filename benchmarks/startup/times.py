"""Fresh processes from their start to a posterior, each with the quality of its draws."""

import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.posteriors.judge import Judge
from benchmarks.posteriors.posterior import BenchmarkPosterior
from benchmarks.posteriors.references import reference
from benchmarks.startup.methods import METHODS
from benchmarks.startup.posteriors import STANDARD_NORMAL, pymc_data
from benchmarks.startup.processes import WorkerFailed, run
from benchmarks.startup.records import Record, Records

# What nvgd's cache of compiled programs holds when a process starts: nothing, the programs of
# another model of the same dimension, or those of the same model.
COLD, KNOWN_SHAPE, AGAIN = STATES = ("cold", "known shape", "again")
QUALITIES = ("energy_ratio", "smallest_sd_ratio", "largest_sd_ratio")


def measure(
    records: Records,
    posterior: BenchmarkPosterior,
    methods: Sequence[str],
    num_seeds: int,
    references: Path,
) -> None:
    """Make the missing records of one posterior, seed by seed, so that methods alternate."""
    missing = [
        (method, seed, states)
        for seed in range(num_seeds)
        for method in methods
        if (states := _missing(records, posterior, method, seed))
    ]
    if not missing:
        return
    made = reference(posterior, references)
    if not made.is_trusted:
        print(f"{posterior.name} is left out: its reference cannot be trusted.")
        return
    judge = Judge(made.draws)
    for method, seed, states in missing:
        for state, result in _results(posterior, method, seed, states):
            record = _record(posterior, method, state, seed, result, judge)
            records.add("times", record)
            print(f"{posterior.name}, {method}, {state}, seed {seed}: {said(record)}", flush=True)


def _missing(records: Records, posterior: BenchmarkPosterior, method: str, seed: int) -> list[str]:
    if METHODS[method].is_pymc and pymc_data(posterior) is None:
        return []
    states = STATES if method == "nvgd" else (COLD,)
    return [s for s in states if ("times", (posterior.name, method, s, seed)) not in records]


def _results(
    posterior: BenchmarkPosterior, method: str, seed: int, states: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The results of the missing states; those of one cache share its directory."""
    task: dict[str, Any] = {
        "kind": "times",
        "posterior": posterior.name,
        "method": method,
        "seed": seed,
        "num_calls": 2,
    }
    if METHODS[method].is_pymc:
        task |= {"dim": posterior.dim, "data": pymc_data(posterior)}
    once = {**task, "num_calls": 1}
    if COLD in states or AGAIN in states:
        with tempfile.TemporaryDirectory() as cache:
            first = _attempt(task, cache)
            if COLD in states:
                yield COLD, first
            if AGAIN in states:
                yield AGAIN, _attempt(once, cache)
    if KNOWN_SHAPE in states:
        with tempfile.TemporaryDirectory() as cache:
            _attempt({**once, "posterior": f"{STANDARD_NORMAL}{posterior.dim}"}, cache)
            yield KNOWN_SHAPE, _attempt(once, cache)


def _attempt(task: dict[str, Any], cache: str) -> dict[str, Any]:
    try:
        return run(task, Path(cache))
    except WorkerFailed as error:
        return {"failure": str(error), "draws": []}


def _record(
    posterior: BenchmarkPosterior,
    method: str,
    state: str,
    seed: int,
    result: dict[str, Any],
    judge: Judge,
) -> Record:
    judgements = [judge(draws) for draws in result.pop("draws")]
    return {
        "posterior": posterior.name,
        "dim": posterior.dim,
        "method": method,
        "state": state,
        "seed": seed,
        **result,
        # One value per call.
        **{name: [_finite(getattr(made, name)) for made in judgements] for name in QUALITIES},
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return round(value, 4) if math.isfinite(value) else None


def said(record: Record) -> str:
    """A record in a few words."""
    if "failure" in record:
        return f"failed: {record['failure']}"
    first, *_ = record["energy_ratio"]
    quality = "diverged" if first is None else f"energy distance {first:.3g} × exact"
    second = record.get("second_cpu_seconds")
    return (
        f"{record['cpu_seconds']:.1f} CPU s, {record['wall_seconds']:.1f} s "
        f"(import {record['import_cpu_seconds']:.1f} CPU s"
        f"{'' if second is None else f', second call {second:.2f} CPU s'}), {quality}"
    )
