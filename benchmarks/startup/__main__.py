"""Time to the first posterior: `nvgd.sample` and NUTS in fresh processes, beside budgets.

python -m benchmarks.startup [--only NAME ...] [--methods NAME ...] [--parts NAME ...] [--seeds K]
    [--out FILE] [--cache-dir DIR]
"""

import argparse
import importlib.metadata
import tempfile
from pathlib import Path

from benchmarks.machine import described
from benchmarks.posteriors.posterior import DataMissing
from benchmarks.posteriors.references import reference_directory
from benchmarks.startup import budgets, processes, tables, times
from benchmarks.startup.figures import draw
from benchmarks.startup.methods import METHODS
from benchmarks.startup.posteriors import DEFAULT, NAMES, build
from benchmarks.startup.programs import FLOWS
from benchmarks.startup.programs import TARGET as PROGRAMS_TARGET
from benchmarks.startup.records import KEYS, Key, Records
from benchmarks.startup.steps import TARGETS as STEP_TARGETS
from nvgd._support.errors import InputError, check_choice, check_count
from nvgd._support.files import output_directory

PARTS = tuple(KEYS)


def main() -> None:
    """Measure what is missing in the records, and print tables and what is over its budget."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.startup",
        description="Measure the time from the start of a process to a posterior.",
    )
    listed = f"of {', '.join(NAMES)}; by default the first {len(DEFAULT)}"
    parser.add_argument("--only", nargs="+", metavar="NAME", default=list(DEFAULT), help=listed)
    parser.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME",
        default=list(METHODS),
        help=f"of {', '.join(METHODS)}",
    )
    parser.add_argument(
        "--parts", nargs="+", metavar="NAME", default=list(PARTS), help=f"of {', '.join(PARTS)}"
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="seeds 0 to K − 1")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/startup.json"))
    parser.add_argument("--cache-dir", type=Path, help="directory of the references")
    options = parser.parse_args()
    try:
        run(options)
    except InputError as error:
        parser.exit(2, f"{error}\n")


def run(options: argparse.Namespace) -> None:
    """The chosen parts: measured, printed, compared with their budgets."""
    check_count("--seeds", options.seeds)
    for argument, accepted in (("only", NAMES), ("methods", METHODS), ("parts", PARTS)):
        for name in getattr(options, argument):
            check_choice(f"--{argument}", name, accepted)
    limits = budgets.read()
    output_directory(options.out.parent)
    records = Records(options.out, _machine())
    limited: list[budgets.Limited] = []
    if "times" in options.parts:
        limited += _times(options, records, limits)
    if "steps" in options.parts:
        for target in STEP_TARGETS:
            _measure_once(records, "steps", (target,), {"posterior": target})
        steps = records.chosen("steps", lambda record: record["target"] in STEP_TARGETS)
        print(f"\n{tables.steps_table(steps)}\n")
        limited += budgets.of_steps(steps, limits)
    if "programs" in options.parts:
        for flow in FLOWS:
            key = (flow, PROGRAMS_TARGET)
            _measure_once(records, "programs", key, {"posterior": key[1], "flow": flow})
        programs = records.chosen("programs", lambda record: record["flow"] in FLOWS)
        for record in programs:
            print(f"\n{tables.programs_table(record)}\n")
        limited += budgets.of_programs(programs, limits)
    print(budgets.verdict(limited))


def _times(
    options: argparse.Namespace, records: Records, limits: budgets.Budgets
) -> list[budgets.Limited]:
    methods = [method for method in dict.fromkeys(options.methods) if _is_here(method)]
    references = reference_directory(options.cache_dir)
    processes.import_once(methods)
    for name in dict.fromkeys(options.only):
        try:
            posterior = build(name)
        except DataMissing as error:
            print(f"{name} is left out: {error}")
            continue
        times.measure(records, posterior, methods, options.seeds, references)
    chosen = records.chosen(
        "times",
        lambda record: (
            record["posterior"] in options.only
            and record["method"] in methods
            and record["seed"] < options.seeds
        ),
    )
    if not chosen:
        return []
    print(f"\n{tables.times_table(chosen, methods)}\n")
    if "nvgd" in methods:
        print(f"{tables.states_table(chosen)}\n")
    print("Wrote", draw(chosen, options.out.with_suffix(".png")), "and", options.out)
    return budgets.of_times(chosen, limits)


def _is_here(method: str) -> bool:
    if processes.installed(method):
        return True
    packages = " and ".join(METHODS[method].packages)
    print(f"{method} is left out: {packages} are not installed.")
    return False


def _measure_once(records: Records, part: str, key: Key, task: dict[str, str]) -> None:
    if (part, key) in records:
        return
    print(f"{part}, {', '.join(key)}: ", end="", flush=True)
    with tempfile.TemporaryDirectory() as cache:
        try:
            records.add(part, processes.run({"kind": part, **task}, Path(cache)))
        except processes.WorkerFailed as error:
            print(f"failed: {error}")
        else:
            print("measured", flush=True)


def _machine() -> dict[str, str]:
    found = described()
    for name in ("nutpie", "pymc", "pytensor"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main()
