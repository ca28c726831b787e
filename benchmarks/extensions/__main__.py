"""Measure the extensions, one table each, in docs/results/extensions.

python -m benchmarks.extensions [--only NAME ...] [--seeds K] [--out DIRECTORY]
"""

import argparse
import time
from pathlib import Path

from benchmarks.extensions import exactness, flows, minibatches
from nvgd._support.errors import InputError, check_choice, check_count
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import markdown

MEASUREMENTS = {
    "langevin-fraction": flows.langevin_fraction,
    "annealing": flows.annealing,
    "preconditioning": flows.preconditioning,
    "projection": flows.projection,
    "stochastic-stein": minibatches.stochastic_stein,
    "evidence": exactness.evidence,
    "determinants": exactness.determinants,
    "memory": flows.memory,
    "momentum": flows.momentum,
    "noise-models": minibatches.noise_models,
    "noisy-flows": minibatches.noisy_flows,
    "invariance": exactness.invariance,
    "finish": exactness.finish,
    "regularisers": flows.regularisers,
    "quadratic-forms": flows.quadratic_forms,
}


def main() -> None:
    """Write the chosen tables, one file each."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.extensions",
        description="Measure the extensions, one table each.",
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", default=list(MEASUREMENTS))
    parser.add_argument("--seeds", type=int, default=3, metavar="K", help="seeds 0 to K − 1")
    parser.add_argument("--out", type=Path, default=Path("docs/results/extensions"))
    options = parser.parse_args()
    try:
        check_count("--seeds", options.seeds)
        for name in options.only:
            check_choice("--only", name, MEASUREMENTS)
        directory = output_directory(options.out)
    except InputError as error:
        parser.exit(2, f"{error}\n")
    for name in options.only:
        started = time.perf_counter()
        table = markdown(MEASUREMENTS[name](options.seeds))
        title = (MEASUREMENTS[name].__doc__ or name).strip()
        text = f"{title}\n\n{table}\n"
        write_atomically(directory / f"{name}.md", lambda path, text=text: path.write_text(text))
        print(f"{name}, {time.perf_counter() - started:.0f} s\n\n{text}", flush=True)


if __name__ == "__main__":
    main()
