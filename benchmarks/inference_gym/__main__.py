"""NVGD and NUTS on the posteriors of Google's Inference Gym, with the same number of gradients.

    sh benchmarks/inference_gym/run.sh [--only NAME ...] [--seeds K] [--bare] [--no-nuts]

The script makes an environment of its own, `.venv/inference_gym`, on the first call and then runs
`python -m benchmarks.inference_gym` in it. NVGD is `nvgd.sample` with its defaults, 256 particles
and 2000 steps; with `--bare`, also with the default number of particles and steps. NUTS has the
same 512,000 gradients, warm-up included (`nuts.py`). Records that the file `--out` already holds
are not made again: choose another file for another version of the library. References by NUTS and
NUTS's own records are made once, in the user's cache (`references.py`). `targets.py` says which
targets there are and which are left out. How many gradients a low error takes is a benchmark of
its own: `sh benchmarks/inference_gym/run.sh low_error` (`low_error.py`).
"""

import argparse
import dataclasses
import json
import math
import time
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import nvgd
from benchmarks.inference_gym.judge import judge
from benchmarks.inference_gym.nuts import nuts
from benchmarks.inference_gym.references import gym_directory, truth_of
from benchmarks.inference_gym.targets import MODELS, GymTarget, Truth, load
from nvgd._support.errors import InputError, check_count
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import align

Record = dict[str, Any]

SETTINGS: dict[str, dict[str, int]] = {
    "nvgd": {"num_particles": 256, "num_steps": 2000},
    "bare": {},
}


def main() -> None:
    """Run what is missing in the records, and print the table of the chosen targets."""
    parser = argparse.ArgumentParser(
        prog="sh benchmarks/inference_gym/run.sh",
        description="Compare NVGD with NUTS on the Inference Gym.",
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="seeds 0 to K − 1")
    parser.add_argument("--bare", action="store_true", help="also run nvgd.sample(target) as it is")
    parser.add_argument("--no-nuts", action="store_true", help="run NVGD only")
    parser.add_argument("--out", type=Path, default=Path("results/inference_gym.json"))
    parser.add_argument("--cache-dir", type=Path, help="directory of the references")
    options = parser.parse_args()
    try:
        records = run(options)
    except InputError as error:
        parser.exit(2, f"{error}\n")
    print(table(records))


def run(options: argparse.Namespace) -> list[Record]:
    """The chosen records: read from the file, or made if they are missing."""
    check_count("--seeds", options.seeds)
    directory = gym_directory(options.cache_dir)
    output_directory(options.out.parent)
    stored = _read(options.out)
    methods = ["nvgd", *["bare"] * options.bare, *["nuts"] * (not options.no_nuts)]
    wanted = []
    for target in load(options.only):
        tasks = [(target.name, method, seed) for method in methods for seed in range(options.seeds)]
        if any(task not in stored for task in tasks):
            truth = truth_of(target, directory)
            if truth is None:
                continue
            for task in tasks:
                if task in stored:
                    continue
                _, method, seed = task
                print(f"{target.name}, {method}, seed {seed}: ", end="", flush=True)
                made = (
                    nuts(target, truth, seed, directory)
                    if method == "nuts"
                    else neural(target, truth, seed, **SETTINGS[method])
                )
                finite = {key: _finite(value) for key, value in made.items()}
                stored[task] = {
                    "target": target.name,
                    "dim": target.dim,
                    "method": method,
                    "seed": seed,
                    **finite,
                    "truth_error": truth.error,
                }
                text = json.dumps(list(stored.values()), indent=1)
                write_atomically(options.out, lambda path, text=text: path.write_text(text))
                print(f"RMSE {made['rmse']:.3g}, {made['seconds']:.0f} s", flush=True)
        wanted += [stored[task] for task in tasks]
        # Every target has its own programs; dozens of them would fill the memory.
        jax.clear_caches()
    return wanted


def neural(target: GymTarget, truth: Truth, seed: int, **settings: int) -> Record:
    """A run of the library, and the errors of what it returns."""
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nvgd.RunStoppedWarning)
        posterior = nvgd.sample(target.for_nvgd(), seed=seed, progress=False, **settings)
        seconds = time.process_time() - started
        verdict = posterior.diagnose().verdict
        summary = posterior.summary()
    draws = constrained_draws(posterior, len(truth.mean))
    judgement = judge(draws.mean(axis=0), draws.std(axis=0), truth)
    summary_means = np.array(list(summary["mean"].values()))
    return {
        **dataclasses.asdict(judgement),
        "summary_rmse": judge(summary_means, truth.sd, truth).rmse,
        "verdict": verdict,
        "status": posterior.status,
        "num_draws": len(draws),
        "num_gradients": int(posterior.history["num_gradients"][-1]),
        "seconds": round(seconds, 1),
    }


def constrained_draws(posterior: nvgd.Posterior, num_scalars: int) -> np.ndarray:
    """All draws of the constrained scalars (n, k), whatever the axes that count them."""
    return np.asarray(posterior.draws["x"], np.float64).reshape(-1, num_scalars)


def _finite(value: Any) -> Any:
    """JSON has neither infinity nor NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _read(path: Path) -> dict[tuple[str, str, int], Record]:
    if not path.exists():
        return {}
    try:
        records = json.loads(path.read_text())
        return {(row["target"], row["method"], row["seed"]): row for row in records}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"--out must be new or hold the records of an earlier run, got {str(path)!r}."
        ) from error


def table(records: Sequence[Record]) -> str:
    """One row per target and form of NVGD, with NUTS beside it."""
    head = (
        "target",
        "d",
        "method",
        "RMSE",
        "summary",
        "NUTS",
        "ratio",
        "truth ±",
        "worst",
        "NUTS worst",
        "sd ratios",
        "verdict",
        "gradients",
        "CPU s",
        "NUTS s",
    )
    rows = [head]
    for name in dict.fromkeys(row["target"] for row in records):
        own = [row for row in records if row["target"] == name]
        rival = [row for row in own if row["method"] == "nuts"]
        for method in SETTINGS:
            runs = [row for row in own if row["method"] == method]
            if not runs:
                continue
            rmse, rival_rmse = _median(runs, "rmse"), _median(rival, "rmse")
            smallest = min(_values(runs, "smallest_sd_ratio"))
            largest = max(_values(runs, "largest_sd_ratio"))
            rows.append(
                (
                    name,
                    str(runs[0]["dim"]),
                    method,
                    f"{rmse:.4f}",
                    f"{_median(runs, 'summary_rmse'):.4f}",
                    f"{rival_rmse:.4f}",
                    f"{rmse / rival_rmse:.2f}",
                    f"{runs[0]['truth_error']:.4f}",
                    f"{_median(runs, 'worst'):.3f}",
                    f"{_median(rival, 'worst'):.3f}",
                    f"{smallest:.2f}–{largest:.2f}",
                    ", ".join(_counted(run["verdict"] for run in runs)),
                    f"{_median(runs, 'num_gradients'):.0f}",
                    f"{_median(runs, 'seconds'):.0f}",
                    f"{_median(rival, 'seconds'):.0f}",
                )
            )
    return (
        f"{align(rows)}\n\nErrors of the means in true standard deviations, over all constrained "
        "scalars; medians over seeds. summary: the means of posterior.summary(). ratio: RMSE over "
        "that of NUTS. truth ±: standard error of the truth itself."
    )


def _values(runs: Iterable[Record], key: str) -> list[float]:
    return [math.inf if run.get(key) is None else run[key] for run in runs]


def _median(runs: Iterable[Record], key: str) -> float:
    values = _values(runs, key)
    return float(np.median(values)) if values else math.nan


def _counted(verdicts: Iterable[str]) -> list[str]:
    found = list(verdicts)
    if len(found) == 1:
        return found
    return [f"{found.count(verdict)} {verdict}" for verdict in dict.fromkeys(found)]


if __name__ == "__main__":
    main()
