"""Squared errors of E[x] and E[x²] by NVGD and by NUTS, with 256 × 2000 gradients each.

    python -m benchmarks.posteriors.moments [--only NAME ...] [--seeds K] [--out FILE]

NVGD is `nvgd.sample` with 256 particles and 2000 steps, and `posterior.expectation`; NUTS is
NumPyro's with its defaults, four chains and all draws after the warm-up. Errors are in units of
Var(x) and Var(x²), averaged over coordinates and seeds. True moments are those of a million exact
draws, or of a long run of NUTS with a dense mass matrix. Their own squared error, estimated from
the differences between chains, is subtracted.
"""

import argparse
import json
import math
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import nvgd
from benchmarks.posteriors.models import load
from benchmarks.posteriors.posterior import BenchmarkPosterior
from benchmarks.posteriors.references import NUM_WARMUP, long_chains, reference_directory
from benchmarks.posteriors.rivals import (
    NUM_PARTICLES,
    NUM_STEPS,
    after_warmup,
    nuts_chains,
)
from nvgd._support.errors import InputError, check_count
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import markdown

NUM_EXACT, NUM_KEPT = 2**20, 40_000
METHODS = ("nvgd", "nuts")
SEED = 20_240_501

Record = dict[str, Any]


class Moments(NamedTuple):
    """True moments of every coordinate x and of x², and the squared errors of these means."""

    mean: np.ndarray
    variance: np.ndarray
    squared_error: np.ndarray
    """In units of the variance."""

    def error(self, means: np.ndarray) -> tuple[float, float]:
        """Mean squared errors of E[x] and of E[x²], in units of the variances."""
        errors = (means - self.mean) ** 2 / self.variance - self.squared_error
        return float(errors[0].mean()), float(errors[1].mean())


def true_moments(posterior: BenchmarkPosterior, directory: Path) -> Moments:
    """The posterior's moments, made on first use and then read from `directory`."""
    path = directory / f"moments-{posterior.name}.npz"
    if not path.is_file():
        made = _made(posterior)._asdict()
        write_atomically(path, lambda file: np.savez(file, allow_pickle=False, **made))
    with np.load(path, allow_pickle=False) as stored:
        return Moments(**stored)


def _made(posterior: BenchmarkPosterior) -> Moments:
    if posterior.draw is not None:
        chains = posterior.draw(SEED, NUM_EXACT).reshape(8, -1, posterior.dim)
    else:
        chains = long_chains(posterior, NUM_WARMUP, NUM_KEPT)
    powers = np.stack([chains, chains**2]).astype(np.float64)
    parts = powers.mean(axis=2)
    variance = powers.var(axis=(1, 2))
    # Independent chains tell the error of their mean.
    error = parts.var(axis=1, ddof=1) / parts.shape[1] / variance
    # Few chains tell it badly for each coordinate, but well on average.
    return Moments(parts.mean(axis=1), variance, error)


def main() -> None:
    """Run what is missing in the records, and print the table of the chosen posteriors."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.posteriors.moments")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="seeds 0 to K − 1")
    parser.add_argument("--out", type=Path, default=Path("results/moments.json"))
    parser.add_argument("--data-dir", type=Path, help="directory of uci_regression.npz")
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
    directory = reference_directory(options.cache_dir)
    output_directory(options.out.parent)
    records = json.loads(options.out.read_text()) if options.out.exists() else []
    stored = {(row["posterior"], row["method"], row["seed"]): row for row in records}
    wanted = []
    for posterior in load(options.only, options.data_dir):
        tasks = [
            (posterior.name, method, seed) for method in METHODS for seed in range(options.seeds)
        ]
        for task in tasks:
            if task not in stored:
                stored[task] = _record(posterior, true_moments(posterior, directory), *task[1:])
                text = json.dumps(list(stored.values()), indent=1)
                write_atomically(options.out, lambda path, text=text: path.write_text(text))
                print(stored[task], flush=True)
            wanted.append(stored[task])
        # Every posterior has its own programs; dozens of them would fill the memory.
        jax.clear_caches()
    return wanted


def _record(posterior: BenchmarkPosterior, truth: Moments, method: str, seed: int) -> Record:
    started = time.process_time()
    means = {"nvgd": _nvgd, "nuts": _nuts}[method](posterior, seed)
    first, second = truth.error(means)
    return {
        "posterior": posterior.name,
        "dim": posterior.dim,
        "method": method,
        "seed": seed,
        "mean": first if math.isfinite(first) else None,
        "mean_square": second if math.isfinite(second) else None,
        "truth": truth.squared_error.mean(axis=1).tolist(),
        "seconds": round(time.process_time() - started, 1),
    }


def _nvgd(posterior: BenchmarkPosterior, seed: int) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        result = nvgd.sample(
            posterior.log_density,
            dim=posterior.dim,
            num_particles=NUM_PARTICLES,
            num_steps=NUM_STEPS,
            seed=seed,
            progress=False,
        )
        powers = result.expectation(lambda draw: jax.numpy.stack([draw["x"], draw["x"] ** 2]))
    return np.asarray(powers.mean, np.float64)


def _nuts(posterior: BenchmarkPosterior, seed: int) -> np.ndarray:
    chains, _ = nuts_chains(posterior, seed, dense_mass=False)
    draws = np.concatenate([after_warmup(draws) for draws in chains]).astype(np.float64)
    return np.stack([draws.mean(axis=0), (draws**2).mean(axis=0)])


def table(records: Sequence[Record]) -> str:
    """One row per posterior; how often NVGD's errors are at most those of NUTS."""
    head = ("posterior", "d", "E[x]: NVGD", "NUTS", "E[x²]: NVGD", "NUTS", "truth ±²")
    rows: list[tuple[str, ...]] = [head]
    wins = [0, 0]
    names = list(dict.fromkeys((row["posterior"], row["dim"]) for row in records))
    for name, dim in names:
        own = [row for row in records if row["posterior"] == name]
        cells = []
        for i, field in enumerate(("mean", "mean_square")):
            ours, theirs = (
                np.mean(
                    [
                        math.inf if row[field] is None else row[field]
                        for row in own
                        if row["method"] == method
                    ]
                )
                for method in METHODS
            )
            wins[i] += bool(ours <= theirs)
            cells += [f"{ours:.2e}", f"{theirs:.2e}"]
        rows.append((name, str(dim), *cells, f"{max(own[0]['truth']):.1e}"))
    return (
        f"{markdown(rows)}\n\nNVGD's error is at most that of NUTS on {wins[0]} of {len(names)} "
        f"posteriors for E[x] and {wins[1]} for E[x²]."
    )


if __name__ == "__main__":
    main()
