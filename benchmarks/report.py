"""docs/benchmarks.md from the results of `make benchmark`.

python -m benchmarks.report [--results DIRECTORY] [--docs DIRECTORY]
"""

import argparse
import json
import shutil
from pathlib import Path

from benchmarks.rivals.__main__ import table as rivals_table
from benchmarks.speed.__main__ import table as speed_table
from benchmarks.speed.measure import Measurement

TEXT = """# Benchmarks

`make benchmark` runs all of this (`python -m benchmarks.speed` and `python -m benchmarks.rivals`, each also in parts); this page is
`python -m benchmarks.report`. {machine}.

The machine was shared with other work while this was measured: ratios are of minima of many short runs taken in turns, and
where single runs are long, processor seconds of all threads are counted instead of waiting time.

## Speed beside its limits

1. One training step of the paper's witness (two hidden layers of 32). The *yardstick* is the algorithm as a plain `while_loop` inside a
   `scan` with optax and Gaussian probes (`benchmarks/speed/yardstick.py`); *NumPy products* are the matrix products of our step and
   nothing else, through OpenBLAS on one thread.
2. Time until 100 particles on the 2-D funnel have the MMD² of exact samples of that size: mean over four seeds.
3. A step as the number of particles grows, d = 10. 4. A step as the dimension grows, n = 100, 10 inner steps.
5. Start-up, in processor seconds of fresh processes. 6. `sample()` with progress bar and history against a bare `lax.scan`.

{speed}

## Beside other samplers

Time a step (of all particles; for NUTS, a draw), memory of the compiled step as the compiler reports it, compilation, and time until the energy
distance (coordinates in units of the target's standard deviations) is at the *level*: one and a half times the mean of exact samples
of the same size. {particles} All start from N(0, I); NUTS also pays for its warm-up of 300 steps, with diagonal mass
matrix. Step sizes of Adam, Adagrad (SteinVI, as its authors recommend, with its default of ten components) and
ULA are the best of two or three by the last energy distance; `nvgd.NVGD()` and NUTS have none to choose. `nvgd.NVGD.paper` is moved by Adam
here and solves its output layer. One seed.

{rivals}

![Energy distance against processor seconds; dotted: the level](images/benchmark-time-to-accuracy.png)
![Time and memory a step against the number of particles, d = 10](images/benchmark-scaling.png)
"""


def main() -> None:
    """Write the page and copy the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report", description="Write docs/benchmarks.md from results."
    )
    parser.add_argument("--results", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    options = parser.parse_args()
    speed = json.loads((options.results / "speed.json").read_text())
    rivals = json.loads((options.results / "rivals.json").read_text())
    machine = rivals["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in machine.items() if k not in ("machine", "date"))
    text = TEXT.format(
        machine=f"Measured on {machine['date']}: {machine['machine']}; {versions}",
        speed=speed_table([Measurement(**row) for row in speed["measurements"]]),
        rivals=rivals_table(rivals["records"]),
        particles="200 particles, on Covertype (20,000 rows) 100.",
    )
    (options.docs / "benchmarks.md").write_text(text)
    for name in ("time-to-accuracy.png", "scaling.png"):
        shutil.copy(options.results / name, options.docs / "images" / f"benchmark-{name}")


if __name__ == "__main__":
    main()
