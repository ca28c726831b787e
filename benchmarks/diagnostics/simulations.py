"""Simulation-based calibration of the bare call on three models, its verdicts and stated errors.

python -m benchmarks.diagnostics.simulations [--only NAME ...] [--number K] [--seed S] [--out FILE]

Every run is also compared with exact moments. It is good if its standard deviations are within .8
and 1.25 times the exact ones and its means within .25 of them.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import nvgd
from benchmarks.diagnostics.simulated_models import MODELS, Moments, Simulated
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import markdown

SD_RATIOS, LARGEST_SHIFT = (0.8, 1.25), 0.25

Record = dict[str, Any]


def calibrate(model: Simulated, number: int, seed: int) -> Record:
    """Ranks, verdicts, and errors of means in units of the stated ones, of `number` data sets."""
    exact: list[Moments] = []
    verdicts, is_good, errors = [], [], []

    def make_target(data: Any) -> nvgd.Target:
        exact.append(model.moments(data))
        return model.target(data)

    def on_run(_: int, posterior: nvgd.Posterior) -> None:
        means, sds, stated = (
            np.array(list(posterior.summary()[column].values()))
            for column in ("mean", "sd", "mc_error")
        )
        shifts, ratios = (means - exact[-1].means) / exact[-1].sds, sds / exact[-1].sds
        is_near = np.all(np.abs(shifts) < LARGEST_SHIFT)
        is_good.append(bool(is_near and SD_RATIOS[0] < ratios.min() < ratios.max() < SD_RATIOS[1]))
        errors.append(((means - exact[-1].means) / stated).tolist())
        verdicts.append(posterior.diagnose().verdict)

    started = time.process_time()
    result = nvgd.simulation_based_calibration(
        model.simulate, number, make_target=make_target, seed=seed, on_run=on_run, progress=False
    )
    return {
        "names": result.names,
        "number": number,
        "p_values": list(result.p_values.values()),
        "is_uniform": result.is_uniform,
        "verdicts": verdicts,
        "is_good": is_good,
        "errors": errors,
        "cpu_seconds": (time.process_time() - started) / number,
    }


def row(name: str, record: Record) -> tuple[str, ...]:
    """A row of the table."""
    errors, number = np.array(record["errors"]), record["number"]
    good = [v for v, is_good in zip(record["verdicts"], record["is_good"], strict=True) if is_good]
    return (
        name,
        str(len(record["names"])),
        str(number),
        f"{min(record['p_values']):.2g}",
        "yes" if record["is_uniform"] else "NO",
        f"{len(good)}/{number}",
        f"{good.count('converged')}/{len(good)}",
        f"{np.sqrt(np.mean(errors**2)):.2f}",
        f"{np.mean(np.abs(errors) > 3):.2%}",
        f"{record['cpu_seconds']:.2f}",
    )


HEAD = ("model", "parameters", "data sets", "smallest p", "uniform", "good", "of these converged")


def main() -> None:
    """Calibrate every chosen model, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.diagnostics.simulations",
        description="Simulation-based calibration of the default method.",
    )
    parser.add_argument("--only", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--number", type=int, default=200, metavar="K", help="data sets per model")
    parser.add_argument("--seed", type=int, default=0, help="of the simulated data and the runs")
    parser.add_argument("--out", type=Path, default=Path("results/simulations.json"))
    options = parser.parse_args()
    output_directory(options.out.parent)
    warnings.simplefilter("ignore", UserWarning)
    records = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.only:
        records[name] = calibrate(MODELS[name], options.number, options.seed)
        print(" | ".join(row(name, records[name])), flush=True)
        text = json.dumps(records) + "\n"
        write_atomically(options.out, lambda path, text=text: path.write_text(text))
    rows = [(*HEAD, "errors, rms", "beyond 3", "CPU s per run")]
    print(markdown([*rows, *(row(name, record) for name, record in records.items())]))


if __name__ == "__main__":
    main()
