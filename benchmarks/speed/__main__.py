"""The speed of the library, each number with its limit.

python -m benchmarks.speed [--parts 1 2 …] [--out FILE]
"""

import argparse
import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.machine import described
from benchmarks.speed.around import loop_overhead, start_up
from benchmarks.speed.costs import cost_in_dimensions, cost_in_particles, many_networks
from benchmarks.speed.measure import Measurement
from benchmarks.speed.training import time_to_quality, training_step
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import markdown

PARTS: dict[int, Callable[[], list[Measurement]]] = {
    1: training_step,
    2: time_to_quality,
    3: cost_in_particles,
    4: cost_in_dimensions,
    5: start_up,
    6: loop_overhead,
    7: many_networks,
}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed",
        description="Measure the library's speed and compare it with its limits.",
    )
    parser.add_argument("--parts", type=int, nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/speed.json"))
    options = parser.parse_args()
    output_directory(options.out.parent)
    stored = json.loads(options.out.read_text())["measurements"] if options.out.exists() else []
    for part in options.parts:
        measured = PARTS[part]()
        print(table(measured), flush=True)
        # Parts that are not chosen keep their earlier measurements.
        stored = [row for row in stored if row["part"] != part]
        stored += [dataclasses.asdict(measurement) for measurement in measured]
        stored.sort(key=lambda row: row["part"])
        text = json.dumps({"machine": described(), "measurements": stored}, indent=1)
        write_atomically(options.out, lambda path, text=text: path.write_text(text))


def table(measurements: Sequence[Measurement]) -> str:
    """The measurements in Markdown."""
    rows = [("part", "what", "value", "limit", "")]
    rows += [
        (str(m.part), m.what, f"{float(f'{m.value:.3g}'):,g} {m.unit}".strip(), m.limit, m.verdict)
        for m in measurements
    ]
    return markdown(rows)


if __name__ == "__main__":
    main()
