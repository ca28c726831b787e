"""Write docs/benchmarks.md from the results of `make benchmark`.

python -m benchmarks.report [--results DIRECTORY] [--docs DIRECTORY]
"""

import argparse
import json
import shutil
from pathlib import Path

from benchmarks.rivals.__main__ import table as rivals_table
from benchmarks.speed.__main__ import table as speed_table
from benchmarks.speed.measure import Measurement
from benchmarks.startup import tables as startup_tables

TEMPLATE = Path(__file__).with_name("report-template.md")


def main() -> None:
    """Write the page, and copy the figures to docs/images."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report", description="Write docs/benchmarks.md from results."
    )
    parser.add_argument("--results", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    options = parser.parse_args()
    speed = json.loads((options.results / "speed.json").read_text())
    rivals = json.loads((options.results / "rivals.json").read_text())
    startup = json.loads((options.results / "startup.json").read_text())
    methods = list(dict.fromkeys(row["method"] for row in startup["times"]))
    machine = rivals["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in machine.items() if k not in ("machine", "date"))
    text = TEMPLATE.read_text().format(
        machine=f"Measured on {machine['date']}: {machine['machine']}; {versions}",
        speed=speed_table([Measurement(**row) for row in speed["measurements"]]),
        rivals=rivals_table(rivals["records"]),
        times=startup_tables.times_table(startup["times"], methods),
        states=startup_tables.states_table(startup["times"]),
        steps=startup_tables.steps_table(startup["steps"]),
        programs="\n\n".join(map(startup_tables.programs_table, startup["programs"])),
        particles="200 particles, on Covertype (20,000 rows) 100.",
    )
    (options.docs / "benchmarks.md").write_text(text)
    for name in ("time-to-accuracy.png", "scaling.png", "startup.png"):
        shutil.copy(options.results / name, options.docs / "images" / f"benchmark-{name}")


if __name__ == "__main__":
    main()
