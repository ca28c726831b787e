"""Samplers on posteriors that none of them was tuned for: a table, and its records.

python -m benchmarks.posteriors [--only NAME ...] [--methods NAME ...] [--seeds K] [--out FILE]
"""

import argparse
import dataclasses
import itertools
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.posteriors.judge import Judge
from benchmarks.posteriors.models import POSTERIORS, load
from benchmarks.posteriors.models_held_out import HELD_OUT
from benchmarks.posteriors.posterior import BenchmarkPosterior
from benchmarks.posteriors.references import reference, reference_directory
from benchmarks.posteriors.rivals import METHODS, RIVALS
from nvgd._support.errors import InputError, check_choice, check_count
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import markdown

Record = dict[str, Any]


def main() -> None:
    """Run what is missing in the records, and print the table of the chosen posteriors."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.posteriors",
        description="Judge samplers on posteriors that none of them was tuned for.",
    )
    listed = ", ".join([*POSTERIORS, *HELD_OUT])
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help=f"of {listed}; held_out: all that were not used in the development",
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME",
        default=list(RIVALS),
        help=f"of {', '.join(METHODS)}",
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="seeds 0 to K − 1")
    parser.add_argument("--out", type=Path, default=Path("results/posteriors.json"))
    parser.add_argument("--data-dir", type=Path, help="directory of uci_regression.npz")
    parser.add_argument("--cache-dir", type=Path, help="directory of the references")
    options = parser.parse_args()
    try:
        records = run(options)
    except InputError as error:
        parser.exit(2, f"{error}\n")
    print(table(records, options.methods))


def run(options: argparse.Namespace) -> list[Record]:
    """The chosen records: read from the file, or made if they are missing."""
    check_count("--seeds", options.seeds)
    for method in options.methods:
        check_choice("--methods", method, METHODS)
    directory = reference_directory(options.cache_dir)
    output_directory(options.out.parent)
    stored = _read(options.out)
    wanted, seeds = [], range(options.seeds)
    for posterior in load(options.only, options.data_dir):
        tasks = [(posterior.name, *rest) for rest in itertools.product(options.methods, seeds)]
        missing = [task for task in tasks if task not in stored]
        if missing:
            made = reference(posterior, directory)
            if not made.is_trusted:
                print(
                    f"{posterior.name}: left out, since its reference cannot be trusted "
                    f"(R-hat {made.r_hat:.3g}, effective size {made.effective_size:.0f})."
                )
                continue
            judge = Judge(made.draws)
            for task in missing:
                _, method, seed = task
                print(f"{posterior.name}, {method}, seed {seed}: ", end="", flush=True)
                stored[task] = _measure(posterior, judge, method, seed)
                text = json.dumps(list(stored.values()), indent=1)
                write_atomically(options.out, lambda path, text=text: path.write_text(text))
                print(f"{_cell([stored[task]])}, {stored[task]['seconds']:.0f} s", flush=True)
        wanted += [stored[task] for task in tasks]
        # Every posterior has its own programs; dozens of them would fill the memory.
        jax.clear_caches()
    return wanted


def _measure(posterior: BenchmarkPosterior, judge: Judge, method: str, seed: int) -> Record:
    started = time.perf_counter()
    outcome = METHODS[method](posterior, judge, seed)
    seconds = time.perf_counter() - started
    judgement = dataclasses.asdict(outcome.judgement)
    # JSON has no infinity.
    finite = {name: value if math.isfinite(value) else None for name, value in judgement.items()}
    return {
        "posterior": posterior.name,
        "dim": posterior.dim,
        "method": method,
        "seed": seed,
        **finite,
        "exact_energy_distance": judge.exact_energy_distance,
        "exact_largest_ks": judge.exact_largest_ks,
        "num_gradients": outcome.num_gradients,
        "seconds": round(seconds, 2),
        "note": outcome.note,
    }


def _read(path: Path) -> dict[tuple[str, str, int], Record]:
    if not path.exists():
        return {}
    try:
        records = json.loads(path.read_text())
        return {(row["posterior"], row["method"], row["seed"]): row for row in records}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"--out must be new or hold the records of an earlier run, got {str(path)!r}."
        ) from error


def table(records: Sequence[Record], methods: Sequence[str]) -> str:
    """One row per posterior, one column per method."""
    names = dict.fromkeys((row["posterior"], row["dim"]) for row in records)
    rows = [("posterior", "d", *methods)]
    for name, dim in names:
        own = [row for row in records if row["posterior"] == name]
        cells = [_cell([row for row in own if row["method"] == method]) for method in methods]
        rows.append((name, str(dim), *cells))
    return (
        f"{markdown(rows)}\n\nA cell: energy distance of 256 draws as a multiple of that of 256 "
        "exact draws (median over seeds), and the smallest and largest ratio of a marginal "
        "standard deviation to the true one (over seeds)."
    )


def _cell(runs: Sequence[Mapping[str, Any]]) -> str:
    if not runs:
        return ""
    ratios = [math.inf if run["energy_ratio"] is None else run["energy_ratio"] for run in runs]
    median = float(np.median(ratios))
    if not math.isfinite(median):
        return "diverged"
    finite = [run for run in runs if run["energy_ratio"] is not None]
    smallest = min(run["smallest_sd_ratio"] for run in finite)
    largest = max(run["largest_sd_ratio"] for run in finite)
    return f"{median:.3g} ({smallest:.2g} to {largest:.3g})"


if __name__ == "__main__":
    main()
