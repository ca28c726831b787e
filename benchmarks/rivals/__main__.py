"""The library, BlackJAX SVGD, NumPyro SteinVI and BlackJAX NUTS on three targets.

python -m benchmarks.rivals [--targets 1 2 3] [--methods NAME ...] [--out DIRECTORY] [--draw]
"""

import argparse
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from benchmarks.machine import described
from benchmarks.rivals import scaling
from benchmarks.rivals.figures import draw, draw_scaling
from benchmarks.rivals.methods import METHODS
from benchmarks.rivals.running import DEFAULT, NUTS, default, nuts, particles
from benchmarks.rivals.targets import load
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import markdown


def main() -> None:
    """Run, print, write, draw."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rivals", description="Compare the library with other samplers."
    )
    parser.add_argument("--targets", type=int, nargs="+", choices=(1, 2, 3), default=[1, 2, 3])
    every = [DEFAULT, *METHODS, NUTS]
    parser.add_argument("--methods", nargs="+", choices=every, default=every, metavar="NAME")
    parser.add_argument("--scaling", action="store_true", help="measure the cost in n again")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument(
        "--draw", action="store_true", help="only print and draw the stored results"
    )
    parser.add_argument("--data-dir", type=Path, help="directory of covertype.npz")
    options = parser.parse_args()
    # Every method compiles its own programs.
    jax.config.update("jax_enable_compilation_cache", False)
    path = output_directory(options.out) / "rivals.json"
    results = json.loads(path.read_text()) if path.exists() else {"records": []}
    if not options.draw:
        results["machine"] = described()
        for record in _run(options):
            print(_line(record), flush=True)
            # Targets and methods that are not chosen keep their earlier records.
            results["records"] = [*(r for r in results["records"] if not _same(r, record)), record]
            _write(path, results)
        if "scaling" not in results or options.scaling:
            results["scaling"] = scaling.measured()
            _write(path, results)
    print(table(results["records"]))
    print("Wrote", draw(results["records"], options.out), "and", path)
    print("Wrote", draw_scaling(results["scaling"], options.out))


def _run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for number in options.targets:
        target = load(number, options.data_dir)
        for name in options.methods:
            if name in (NUTS, DEFAULT):
                run = nuts if name == NUTS else default
                yield dataclasses.asdict(run(target, seed=0))
            else:
                yield dataclasses.asdict(particles(name, METHODS[name], target, seed=0))
            # Every method has its own programs; dozens of them would fill the memory.
            jax.clear_caches()


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[name] == other[name] for name in ("target", "method"))


def _write(path: Path, results: dict[str, Any]) -> None:
    write_atomically(path, lambda file: file.write_text(json.dumps(results, indent=1)))


def table(records: list[dict[str, Any]]) -> str:
    """One row per target and method."""
    head = (
        "target",
        "method",
        "compilation, s",
        "ms per step",
        "memory, MB",
        "s to the level, compilation included",
        "last energy distance / level",
    )
    return markdown([head, *(_line(record) for record in records)])


def _line(record: dict[str, Any]) -> tuple[str, ...]:
    reached, memory = record["seconds_to_level"], record["memory_megabytes"]
    compilation = record["compilation_seconds"]
    ratio = record["energy"][-1] / record["level"]
    return (
        record["target"],
        record["method"],
        f"{compilation:.1f}",
        f"{record['milliseconds_per_step']:.3g}",
        "" if memory is None else f"{memory:.3g}",
        "not reached" if reached is None else f"{compilation + reached:.1f}",
        f"{float(f'{ratio:.2g}'):g}",
    )


if __name__ == "__main__":
    main()
