"""The bare call on posteriors that are seen in minibatches, beside rivals: a table.

python -m benchmarks.minibatches [--only NAME ...] [--seeds K] [--rivals] [--out FILE]
"""

import argparse
import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

import nvgd
from benchmarks.minibatches.models import MODELS
from benchmarks.minibatches.rivals import NUM_STEPS, RIVALS
from benchmarks.posteriors.judge import DIVERGED, Judge
from benchmarks.posteriors.references import reference, reference_directory
from nvgd._support.errors import InputError, check_choice, check_count
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import align

NVGD, FLOW = "NVGD", "NVGD, flow alone"
# Draws of which the energy distance is measured.
NUM_DRAWS = 4000
# Steps of each of the four chains of a reference, in whitened coordinates.
NUM_WARMUP, NUM_KEPT = 500, 1000

Record = dict[str, Any]


def main() -> None:
    """Run what is missing in the records, and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.minibatches",
        description="Judge nvgd.sample(target) on posteriors that are seen in minibatches.",
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="number of seeds")
    parser.add_argument("--rivals", action="store_true", help="run the rivals, too")
    parser.add_argument("--out", type=Path, default=Path("results/minibatches.json"))
    parser.add_argument("--cache-dir", type=Path, help="directory of the references")
    options = parser.parse_args()
    # Runs that have not converged warn; here the verdict is recorded.
    warnings.simplefilter("ignore", UserWarning)
    try:
        records = run(options)
    except InputError as error:
        parser.exit(2, f"{error}\n")
    print(table(records))
    if options.rivals:
        print(f"\n{rival_table(records)}")


def run(options: argparse.Namespace) -> list[Record]:
    """The records of the file, with those that were missing."""
    check_count("--seeds", options.seeds)
    for name in options.only or ():
        check_choice("--only", name, MODELS)
    output_directory(options.out.parent)
    records: list[Record] = json.loads(options.out.read_text()) if options.out.is_file() else []
    done = {(row["model"], row["method"], row["seed"]) for row in records}
    methods = [NVGD, *([FLOW, *RIVALS] if options.rivals else [])]
    for name in options.only or MODELS:
        tasks = [(method, seed) for method in methods for seed in range(options.seeds)]
        tasks = [task for task in tasks if (name, *task) not in done]
        if not tasks:
            continue
        model = MODELS[name]()
        directory = reference_directory(options.cache_dir)
        made = reference(model.posterior(), directory, NUM_WARMUP, NUM_KEPT)
        if made.r_hat > 1.01:
            print(f"{name}: left out, since R-hat of its reference is {made.r_hat:.3g}.")
            continue
        judge = Judge(made.draws)
        for method, seed in tasks:
            records.append(_measure(model, judge, method, seed))
            print(json.dumps(records[-1]), flush=True)
            text = json.dumps(records, indent=1) + "\n"
            write_atomically(options.out, lambda path, text=text: path.write_text(text))
        # Every model has its own programs; dozens of them would fill the memory.
        jax.clear_caches()
    return records


def _measure(model: Any, judge: Judge, method: str, seed: int) -> Record:
    """One method on one model, at its best setting."""
    started, started_cpu = time.perf_counter(), time.process_time()
    extra: Record = {}
    if method == NVGD:
        posterior = nvgd.sample(model.target(), seed=seed, progress=False)
        found = judge(posterior.particles)
        draws = posterior.flat_positions
        chosen = np.random.default_rng(seed).permutation(len(draws))[:NUM_DRAWS]
        shifts = np.abs(draws.mean(axis=0) - judge.mean) / judge.sd
        rows = int(posterior.history["num_rows"].sum())
        extra = {
            "draws_energy": judge(draws[chosen]).energy_ratio,
            "largest_shift": float(shifts.max()),
            "density_error": posterior.density_error,
            "verdict": posterior.diagnose().verdict,
            "num_steps": posterior.num_steps,
            "rows_per_particle": rows,
        }
    elif method == FLOW:
        flow = nvgd.NVGD(corrected=False)
        posterior = nvgd.sample(
            model.target(), flow, num_steps=NUM_STEPS, seed=seed, progress=False
        )
        found = judge(posterior.particles)
    else:
        rival, settings, has_anchor = RIVALS[method]
        target = model.target(gradient="control_variate" if has_anchor else "plain")
        found, setting = DIVERGED, None
        for size in settings:
            judged = judge(rival(model, target, size, seed))
            if judged.energy_ratio < found.energy_ratio:
                found, setting = judged, size
        extra = {"setting": setting, "num_settings": len(settings)}
    record = {
        "model": model.name,
        "dim": model.dim,
        "num_rows": model.num_rows,
        "method": method,
        "seed": seed,
        "energy": found.energy_ratio,
        "smallest_sd": found.smallest_sd_ratio,
        "largest_sd": found.largest_sd_ratio,
        **extra,
        "cpu_seconds": round(time.process_time() - started_cpu, 1),
        "seconds": round(time.perf_counter() - started, 1),
    }
    return {name: _plain(value) for name, value in record.items()}


def _plain(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else None


def table(records: list[Record]) -> str:
    """The bare call, one row per model: the worst of all seeds."""
    head = (
        "posterior",
        "d",
        "N",
        "particles",
        "sds",
        "draws",
        "shift",
        "error",
        "steps",
        "verdict",
    )
    rows = [head]
    for name in dict.fromkeys(row["model"] for row in records):
        own = [row for row in records if (row["model"], row["method"]) == (name, NVGD)]
        if not own:
            continue
        verdicts = {row["verdict"] for row in own}
        rows.append(
            (
                name,
                str(own[0]["dim"]),
                f"{own[0]['num_rows']:,}",
                f"{_worst(own, 'energy'):.2f}",
                f"{min(row['smallest_sd'] for row in own):.2f}–{_worst(own, 'largest_sd'):.2f}",
                f"{_worst(own, 'draws_energy'):.2f}",
                f"{_worst(own, 'largest_shift'):.2f}",
                f"{_worst(own, 'density_error'):.3f}",
                f"{max(row['num_steps'] for row in own)}",
                ", ".join(sorted(verdicts)),
            )
        )
    return align(rows)


def rival_table(records: list[Record]) -> str:
    """Energy distances of all methods, one column per method: medians over seeds."""
    methods = [NVGD, FLOW, *RIVALS]
    rows = [("posterior", *methods)]
    for name in dict.fromkeys(row["model"] for row in records):
        cells = []
        for method in methods:
            own = [r for r in records if (r["model"], r["method"]) == (name, method)]
            values = [math.inf if r["energy"] is None else r["energy"] for r in own]
            cells.append(f"{np.median(values):.3g}" if values else "")
        rows.append((name, *cells))
    return align(rows)


def _worst(rows: list[Record], name: str) -> float:
    return max(math.inf if row[name] is None else row[name] for row in rows)


if __name__ == "__main__":
    main()
