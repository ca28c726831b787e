"""The bare call `nvgd.sample(target)` on models as people write them: a table, and its records.

python -m benchmarks.trust [--only NAME ...] [--seeds K] [--first-seed S] [--out FILE]
"""

import argparse
import collections
import dataclasses
import json
import math
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import nvgd
from benchmarks.trust.judge import Judge, Judgement, Worst
from benchmarks.trust.model import TrustModel
from benchmarks.trust.models import MODELS, load
from benchmarks.trust.references import reference, reference_directory
from nvgd._support.errors import InputError, check_count, check_seed
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import align, markdown
from nvgd.posterior.summary import Summary

Record = dict[str, Any]


def main() -> None:
    """Run what is missing in the records, and print the table of the chosen models."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trust",
        description="Judge the bare call nvgd.sample(target) on models as people write them.",
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=0, metavar="S", help="the first of them")
    parser.add_argument("--out", type=Path, default=Path("results/trust.json"))
    parser.add_argument("--cache-dir", type=Path, help="directory of the references")
    parser.add_argument("--page", action="store_true", help="print the records in the file only")
    options = parser.parse_args()
    # Runs that have not converged warn; here the verdict is recorded.
    warnings.simplefilter("ignore", UserWarning)
    warnings.simplefilter("ignore", FutureWarning)
    if options.page:
        print(page(list(_read(options.out).values())))
        return
    try:
        records = run(options)
    except InputError as error:
        parser.exit(2, f"{error}\n")
    print(table(records))


def run(options: argparse.Namespace) -> list[Record]:
    """The chosen records: read from the file, or made if they are missing."""
    check_count("--seeds", options.seeds)
    check_seed(options.first_seed)
    directory = reference_directory(options.cache_dir)
    output_directory(options.out.parent)
    stored = _read(options.out)
    wanted = []
    for model in load(options.only):
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        missing = [seed for seed in seeds if (model.name, seed) not in stored]
        if missing:
            made = reference(model, directory)
            if not made.is_trusted:
                print(
                    f"{model.name}: left out, since its reference cannot be trusted "
                    f"(R-hat {made.r_hat:.3g}, effective size {made.effective_size:.0f}, "
                    f"{made.num_divergent} divergent)."
                )
                continue
            judge = Judge(made)
            for seed in missing:
                record = _measure(model, judge, seed)
                stored[model.name, seed] = record
                text = json.dumps(list(stored.values()), indent=1) + "\n"
                write_atomically(options.out, lambda path, text=text: path.write_text(text))
                print(_line(record), flush=True)
            # Every model has its own programs; dozens of them would fill the memory.
            jax.clear_caches()
        wanted += [stored[model.name, seed] for seed in seeds]
    return wanted


def _measure(model: TrustModel, judge: Judge, seed: int) -> Record:
    """One bare call, and what is recorded of it."""
    target = model.target()
    started, started_cpu = time.perf_counter(), time.process_time()
    posterior = nvgd.sample(target, seed=seed, progress=False)
    jax.block_until_ready(posterior.particles)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
    judgement = judge(posterior.draws, _stated(posterior))
    return {
        "model": model.name,
        "dim": target.dim,
        "seed": seed,
        "is_good": judgement.is_good,
        "verdict": posterior.diagnose().verdict,
        **_plain(judgement),
        "num_particles": len(posterior.particles),
        "num_gradients": int(posterior.history["num_gradients"][-1]),
        "cpu_seconds": round(cpu_seconds, 2),
        "seconds": round(seconds, 2),
        "status": posterior.status,
    }


def _stated(posterior: nvgd.Posterior) -> Summary | None:
    """Stated means and errors; None if there are none, as after a divergence."""
    summary = posterior.summary()
    return summary if np.all(np.isfinite(summary.columns["mc_error"])) else None


def _plain(judgement: Judgement) -> Record:
    """The judgement as JSON has it: names beside values, and None for infinity."""
    record: Record = {}
    for field in dataclasses.fields(judgement):
        value = getattr(judgement, field.name)
        if isinstance(value, Worst):
            record[f"{field.name}_of"] = value.name
            value = value.value
        record[field.name] = round(value, 4) if math.isfinite(value) else None
    return record


def _read(path: Path) -> dict[tuple[str, int], Record]:
    if not path.exists():
        return {}
    try:
        return {(row["model"], row["seed"]): row for row in json.loads(path.read_text())}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"--out must be new or hold the records of an earlier run, got {str(path)!r}."
        ) from error


def _line(record: Record) -> str:
    number = {name: f"{_number(record, name):.3g}" for name in record if f"{name}_of" in record}
    worst = ", ".join(f"{name} {number[name]} ({record[f'{name}_of']})" for name in number)
    return (
        f"{record['model']}, seed {record['seed']}: "
        f"{'good' if record['is_good'] else 'BAD'}, {record['verdict']}; "
        f"energy {_number(record, 'energy'):.3g}, all {_number(record, 'energy_all'):.3g}; "
        f"{worst}; {record['num_particles']} particles, {record['num_gradients']} gradients, "
        f"{record['cpu_seconds']:.0f} s CPU"
    )


def _number(record: Record, name: str) -> float:
    value = record.get(name)
    return math.inf if value is None else value


def table(records: Sequence[Record]) -> str:
    """One row per model, and how often the verdict was right."""
    if not records:
        return "no records"
    head = ("model", "d", "energy", "max", "sd ratio", "shift", "mean error", "good")
    rows = [(*head, "exact energy", "exact sd", "exact shift", "CPU s", "verdicts")]
    for name in dict.fromkeys(row["model"] for row in records):
        rows.append(_row([row for row in records if row["model"] == name]))
    return "\n".join(
        [
            align(rows),
            "",
            align(_counts(records)),
            "",
            "energy, max: median and largest energy distance over seeds; 1 for exact draws.",
            "sd ratio, shift: worst over scalars and seeds.",
            "exact: as many exact draws; 95 % quantile of energy, medians of worst sd and shift.",
            "mean error: worst over scalars and seeds, in units of the stated error.",
        ]
    )


def page(records: Sequence[Record]) -> str:
    """The table of the documentation, in Markdown, for all records there are."""
    head = ("model", "parameters", "seeds", "energy, median", "largest", "sd ratio", "shift")
    rows = [(*head, "mean error", "good", "converged", "CPU s, median")]
    for name in dict.fromkeys(row["model"] for row in records):
        own = [row for row in records if row["model"] == name]
        model, dim, median, largest, ratio, shift, error, good, *_, seconds, _ = _row(own)
        converged = sum(row["verdict"] == "converged" for row in own)
        columns = (model, dim, str(len(own)), median, largest, ratio, shift, error, good)
        rows.append((*columns, f"{converged}/{len(own)}", seconds))
    return markdown(rows) + "\n\n" + align(_counts(records))


def _row(own: Sequence[Record]) -> tuple[str, ...]:
    def column(name: str) -> list[float]:
        return [_number(row, name) for row in own]

    ratios = np.array(column("sd_ratio"))
    with np.errstate(divide="ignore"):
        worst_ratio = ratios[np.argmax(np.abs(np.log(ratios)))]
    verdicts = collections.Counter(row["verdict"] for row in own)
    return (
        own[0]["model"],
        str(own[0]["dim"]),
        f"{np.median(column('energy')):.3g}",
        f"{max(column('energy')):.3g}",
        f"{worst_ratio:.3g}",
        f"{max(column('quantile_shift')):.2f}",
        f"{max(column('mean_error')):.1f}",
        f"{sum(row['is_good'] for row in own)}/{len(own)}",
        f"{np.median(column('exact_energy')):.2f}",
        f"{np.median(column('exact_sd_ratio')):.2f}",
        f"{np.median(column('exact_quantile_shift')):.2f}",
        f"{np.median(column('cpu_seconds')):.0f}",
        ", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common()),
    )


def _counts(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """Good and bad runs, by whether the verdict is "converged"."""
    counts = collections.Counter((row["is_good"], row["verdict"] == "converged") for row in records)
    return [
        ("", "converged", "not"),
        *(
            (label, str(counts[is_good, True]), str(counts[is_good, False]))
            for label, is_good in (("good", True), ("bad", False))
        ),
    ]


if __name__ == "__main__":
    main()
