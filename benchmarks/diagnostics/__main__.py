"""Hits and false alarms of `Posterior.diagnose`: a table and its records.

python -m benchmarks.diagnostics [--seeds K] [--only TEXT ...] [--out FILE]

Cases that are not chosen keep their record in the file.
"""

import argparse
import collections
import json
import time
import warnings
from pathlib import Path
from typing import Any

import jax

from benchmarks.diagnostics.cases import Case, cases
from nvgd._support.errors import InputError, check_count
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import markdown

Record = dict[str, Any]


def main() -> None:
    """Diagnose the chosen cases, and print how often the verdict was right."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.diagnostics",
        description="How often Posterior.diagnose is right.",
    )
    parser.add_argument("--seeds", type=int, default=20, metavar="K", help="seeds 0 to K − 1")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="parts of names")
    parser.add_argument("--out", type=Path, default=Path("results/diagnostics.json"))
    options = parser.parse_args()
    try:
        check_count("--seeds", options.seeds)
        output_directory(options.out.parent)
    except InputError as error:
        parser.exit(2, f"{error}\n")
    # Runs that are meant to fail warn; here only the verdict counts.
    warnings.simplefilter("ignore", UserWarning)
    records = _read(options.out)
    for case in cases():
        if any(text in f"{case.group}: {case.name}" for text in options.only):
            record = _measure(case, min(options.seeds, case.max_seeds))
            records[f"{case.group}: {case.name}"] = record
            print(" | ".join(_row(record)), f"({record['seconds']:.0f} s)", flush=True)
            text = json.dumps(list(records.values()), indent=1) + "\n"
            write_atomically(options.out, lambda path, text=text: path.write_text(text))
            # Every density has its own programs; dozens of them would fill the memory.
            jax.clear_caches()
    names = [f"{case.group}: {case.name}" for case in cases()]
    print(table([records[name] for name in names if name in records]))


def _read(path: Path) -> dict[str, Record]:
    if not path.exists():
        return {}
    return {f"{r['group']}: {r['case']}": r for r in json.loads(path.read_text())}


def _measure(case: Case, num_seeds: int) -> Record:
    started = time.perf_counter()
    diagnoses = [
        case.make(seed).diagnose(num_replicates=case.num_replicates) for seed in range(num_seeds)
    ]
    counts = collections.Counter(diagnosis.verdict for diagnosis in diagnoses)
    alarms = collections.Counter(
        name
        for diagnosis in diagnoses
        for name, check in diagnosis.checks.items()
        if check.is_alarm
    )
    return {
        "group": case.group,
        "case": case.name,
        "runs": num_seeds,
        "right": sum(counts[verdict] for verdict in case.right),
        "not_converged": num_seeds - counts["converged"],
        "verdicts": dict(counts),
        "alarms": dict(alarms),
        "seconds": time.perf_counter() - started,
    }


def _row(record: Record) -> tuple[str, ...]:
    verdicts = ", ".join(f"{name} {count}" for name, count in record["verdicts"].items())
    runs = record["runs"]
    return (
        f"{record['group']}: {record['case']}",
        f"{record['not_converged']}/{runs}",
        f"{record['right']}/{runs}",
        verdicts,
    )


def table(records: list[Record]) -> str:
    """One row per group, then one row per case."""
    head = ("case", "alarm", "right verdict", "verdicts")
    totals: dict[str, collections.Counter[str]] = {}
    for record in records:
        counts = totals.setdefault(record["group"], collections.Counter())
        counts.update({name: record[name] for name in ("runs", "right", "not_converged")})
    summary = [
        (f"**{group}**", f"{c['not_converged']}/{c['runs']}", f"{c['right']}/{c['runs']}", "")
        for group, c in totals.items()
    ]
    return markdown([head, *summary, *map(_row, records)])


if __name__ == "__main__":
    main()
