"""The bare call on posteriors that are seen in minibatches, beside rivals: a table.

python -m benchmarks.minibatches [--only NAME ...] [--seeds K] [--rivals] [--out FILE]
"""

import argparse
import functools
import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

import nvgd
from benchmarks.minibatches.model import BATCH_SIZE, MinibatchModel
from benchmarks.minibatches.models import MODELS
from benchmarks.minibatches.rivals import (
    NUM_PARTICLES,
    NUM_STEPS,
    RIVALS,
    Sample,
    Start,
    best_setting,
)
from benchmarks.posteriors.judge import Judge, Judgement
from benchmarks.posteriors.references import (
    independence,
    nuts,
    reference,
    reference_directory,
)
from nvgd._support.errors import InputError, check_choice, check_count
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import align

NVGD, FLOW = "NVGD", "NVGD, flow alone"
# Draws of which the energy distance is measured.
NUM_DRAWS = 4000
# References: independent proposals, where these are accepted, or NUTS of ever shorter steps.
MAKERS = (
    independence,
    functools.partial(nuts, target_accept=0.8, num_warmup=200, num_kept=1000, is_whitened=True),
    *(
        functools.partial(nuts, target_accept=rate, num_warmup=500, num_kept=1000)
        for rate in (0.8, 0.95, 0.99)
    ),
)

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
    print(summary(records))
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
        made = reference(model.posterior(), directory, MAKERS)
        if not made.is_trusted:
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


def _measure(model: MinibatchModel, judge: Judge, method: str, seed: int) -> Record:
    """One method on one model, at its best setting."""
    started = time.perf_counter()
    if method in (NVGD, FLOW):
        found, extra = _bare(model, judge, seed) if method == NVGD else _flow(model, judge, seed)
    else:
        found, extra = _rival(model, judge, method, seed)
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
        "seconds": round(time.perf_counter() - started, 1),
    }
    return {name: _plain(value) for name, value in record.items()}


def _bare(model: MinibatchModel, judge: Judge, seed: int) -> tuple[Judgement, Record]:
    started = time.process_time()
    posterior = nvgd.sample(model.target(), seed=seed, progress=False)
    seconds = time.process_time() - started
    draws = posterior.flat_positions
    chosen = np.random.default_rng(seed).permutation(len(draws))[:NUM_DRAWS]
    rows = int(posterior.history["num_rows"].sum())
    diagnosis = posterior.diagnose()
    return judge(posterior.particles), {
        "draws_energy": judge(draws[chosen]).energy_ratio,
        "largest_shift": float(np.max(np.abs(draws.mean(axis=0) - judge.mean) / judge.sd)),
        "density_error": posterior.density_error,
        "verdict": diagnosis.verdict,
        "reason": diagnosis.reason,
        "num_steps": posterior.num_steps,
        "rows_per_particle": rows,
        "row_gradients": float(rows * NUM_PARTICLES),
        "cpu_seconds": seconds,
    }


def _flow(model: MinibatchModel, judge: Judge, seed: int) -> tuple[Judgement, Record]:
    started = time.process_time()
    flow = nvgd.NVGD(corrected=False)
    posterior = nvgd.sample(model.target(), flow, num_steps=NUM_STEPS, seed=seed, progress=False)
    seconds = time.process_time() - started
    rows = float(NUM_STEPS * BATCH_SIZE * NUM_PARTICLES)
    return judge(posterior.particles), {"row_gradients": rows, "cpu_seconds": seconds}


def _rival(model: MinibatchModel, judge: Judge, method: str, seed: int) -> tuple[Judgement, Record]:
    """A rival at its best setting; time and work are those of a run with that setting."""
    rival, settings, has_anchor = RIVALS[method]
    start = Start.at_mode(model)
    target = model.target(gradient="control_variate" if has_anchor else "plain")
    runs: dict[float, tuple[Judgement, Sample]] = {}

    def measure(setting: float) -> float:
        sample = rival(model, target, start, setting, seed)
        runs[setting] = judge(sample.positions), sample
        return runs[setting][0].energy_ratio

    best = best_setting(measure, settings)
    found, sample = runs[best]
    return found, {
        "setting": best,
        "num_settings": len(runs),
        "row_gradients": sample.row_gradients,
        "cpu_seconds": sample.cpu_seconds,
    }


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


def summary(records: list[Record]) -> str:
    """All runs of the bare call in one sentence."""
    own = [row for row in records if row["method"] == NVGD]
    energies = [math.inf if row["energy"] is None else row["energy"] for row in own]
    return (
        f"{len(own)} runs: particles {min(energies):.2f} to {max(energies):.2f} times as far as "
        f"exact draws, median {np.median(energies):.2f}; standard deviations "
        f"{min(row['smallest_sd'] for row in own):.2f} to {_worst(own, 'largest_sd'):.2f}; "
        f"{sum(row['verdict'] == 'converged' for row in own)} converged."
    )


def rival_table(records: list[Record]) -> str:
    """All methods, one column per model: energy distance, row gradients, seconds; seed medians."""
    names = list(dict.fromkeys(row["model"] for row in records if row["method"] in RIVALS))
    rows = [("method", *names)]
    for method in (NVGD, FLOW, *RIVALS):
        cells = []
        for name in names:
            own = [r for r in records if (r["model"], r["method"]) == (name, method)]
            energy, work, seconds = (
                np.median([math.inf if r[key] is None else r[key] for r in own] or [math.nan])
                for key in ("energy", "row_gradients", "cpu_seconds")
            )
            cells.append(f"{energy:.3g} / {work / 1e6:.0f}M / {seconds:.0f} s")
        rows.append((method, *cells))
    return align(rows)


def _worst(rows: list[Record], name: str) -> float:
    return max(math.inf if row[name] is None else row[name] for row in rows)


if __name__ == "__main__":
    main()
