"""The library beside BlackJAX SVGD, NumPyro SteinVI and BlackJAX NUTS on three targets.

python -m benchmarks.rivals [--targets 1 2 3] [--out DIRECTORY] [--draw] [--data-dir DIRECTORY]
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax

from benchmarks.machine import described
from benchmarks.rivals import scaling
from benchmarks.rivals.figures import draw, draw_scaling
from benchmarks.rivals.methods import METHODS
from benchmarks.rivals.running import nuts, particles
from benchmarks.rivals.targets import load
from nvgd.files import output_directory, write_atomically
from nvgd.tables import markdown


def main() -> None:
    """Run, print, write, draw."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rivals", description="The library beside its rivals."
    )
    parser.add_argument("--targets", type=int, nargs="+", choices=(1, 2, 3), default=[1, 2, 3])
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--draw", action="store_true", help="only draw and print what is there")
    parser.add_argument("--data-dir", type=Path, help="where covertype.npz is")
    options = parser.parse_args()
    path = output_directory(options.out) / "rivals.json"
    results = json.loads(path.read_text()) if path.exists() else {"records": []}
    if not options.draw:
        new = _run(options)
        if "scaling" not in results or len(options.targets) == 3:
            results["scaling"] = scaling.measured()
        # Targets that were not asked for keep what an earlier run found.
        measured = {record["target"] for record in new}
        old = [record for record in results["records"] if record["target"] not in measured]
        results |= {"machine": described(), "records": [*old, *new]}
        write_atomically(path, lambda file: file.write_text(json.dumps(results, indent=1)))
    print(table(results["records"]))
    print("Wrote", draw(results["records"], options.out), "and", path)
    print("Wrote", draw_scaling(results["scaling"], options.out))


def _run(options: argparse.Namespace) -> list[dict[str, Any]]:
    records = []
    for number in options.targets:
        target = load(number, options.data_dir)
        for name, method in METHODS.items():
            records.append(particles(name, method, target, seed=0))
            print(_line(dataclasses.asdict(records[-1])), flush=True)
            # Each method is a program of its own; dozens of them would fill the memory.
            jax.clear_caches()
        records.append(nuts(target, seed=0))
        print(_line(dataclasses.asdict(records[-1])), flush=True)
    return [dataclasses.asdict(record) for record in records]


def table(records: list[dict[str, Any]]) -> str:
    """One row a target and method."""
    head = (
        "target",
        "method",
        "compilation, s",
        "a step, ms",
        "memory, MB",
        "s to the level",
        "last energy distance / level",
    )
    return markdown([head, *(_line(record) for record in records)])


def _line(record: dict[str, Any]) -> tuple[str, ...]:
    reached = record["seconds_to_level"]
    return (
        record["target"],
        record["method"],
        f"{record['compilation_seconds']:.1f}",
        f"{record['milliseconds_a_step']:.3g}",
        f"{record['memory_megabytes']:.3g}",
        "not reached" if reached is None else f"{reached:.2g}",
        f"{record['energy'][-1] / record['level']:.2g}",
    )


if __name__ == "__main__":
    main()
