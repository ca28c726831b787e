"""UCI regression: `nvgd.sample` with its defaults beside rivals with as many gradients.

    python -m benchmarks.networks --data uci_regression.npz [--sets NAME ...] [--splits K]

The file holds one array per data set, whose last column is the target. Split k of a set leaves out
a tenth of the rows, chosen by NumPy's `default_rng(k)`. The network has one hidden layer of 50 ReLU
units (100 for protein). All methods take 100 networks through the same number of steps with batches
of the same size, MC dropout one network through a hundred times as many. Records that `--out`
already holds are not made again.
"""

import argparse
import functools
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

import nvgd
from benchmarks.networks.rivals import NUM_NETWORKS, NUM_TUNED, RIVALS
from benchmarks.networks.table import page
from benchmarks.networks.tuning import best_rate
from nvgd._support.errors import InputError, check_count
from nvgd._support.files import output_directory, write_atomically
from nvgd.running.sampling import default_num_steps

# Short names as in the literature, and those in the file.
SETS = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "naval": "naval_propulsion_plant",
    "power": "power_plant",
    "protein": "protein_tertiary_structure",
    "wine": "wine_quality_red",
    "yacht": "yacht",
}


def main() -> None:
    """Run what is missing in the records, and write them and the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the file with the data sets")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), metavar="NAME")
    parser.add_argument("--splits", type=int, default=20, metavar="K", help="splits 0 to K − 1")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--num-steps", type=int, help="those of nvgd.sample if omitted")
    parser.add_argument("--out", type=Path, default=Path("results/networks"))
    options = parser.parse_args()
    try:
        check_count("--splits", options.splits)
        if options.num_steps is not None:
            check_count("--num-steps", options.num_steps)
        run(options)
    except InputError as error:
        sys.exit(str(error))


def run(options: argparse.Namespace) -> None:
    """See `main`."""
    if not options.data.is_file():
        raise InputError(f"--data must name a file with the data sets, got {str(options.data)!r}.")
    path = output_directory(options.out, "--out") / "records.json"
    records: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    done = {(r["set"], r["split"], r["num_steps"], r["method"]) for r in records}
    with np.load(options.data, allow_pickle=False) as data:
        for split, name, method in itertools.product(
            range(options.splits), options.sets, options.methods
        ):
            part = Split.of(name, data[SETS[name]], split)
            num_steps = options.num_steps or default_num_steps(part.target(part.train))
            if (name, split, num_steps, method) in done:
                continue
            facts = {"set": name, "split": split, "num_steps": num_steps, "method": method}
            found = METHODS[method](part, num_steps)
            records.append({**facts, **found})
            text = json.dumps(records, indent=1)
            write_atomically(path, lambda at, text=text: at.write_text(text))
            print(records[-1], flush=True)
    text = page(records)
    write_atomically(path.parent / "networks.md", lambda at: at.write_text(text))


class Split(NamedTuple):
    """One data set, divided into rows to train and rows to test on."""

    x: np.ndarray
    y: np.ndarray
    train: np.ndarray
    test: np.ndarray
    width: int
    number: int

    @classmethod
    def of(cls, name: str, table: np.ndarray, number: int) -> "Split":
        """Split `number` of a table whose last column is the target."""
        order = np.random.default_rng(number).permutation(len(table))
        num_train = round(0.9 * len(table))
        width = 100 if name == "protein" else 50
        parts = order[:num_train], order[num_train:]
        return cls(table[:, :-1], table[:, -1], *parts, width, number)

    def target(self, rows: np.ndarray) -> nvgd.Target:
        """The posterior given some rows, with the batch size of all training rows."""
        network = eqx.nn.MLP(self.x.shape[1], 1, self.width, 1, key=jax.random.key(0))
        batch_size = int(np.clip(len(self.train) // 8, 16, 128))
        return nvgd.from_network(network, data=(self.x[rows], self.y[rows]), batch_size=batch_size)


def measure_nvgd(split: Split, num_steps: int) -> dict[str, float]:
    """`nvgd.sample` as it is, but for its number of steps."""
    target = split.target(split.train)
    start = time.process_time()
    posterior = nvgd.sample(
        target,
        num_particles=NUM_NETWORKS,
        num_steps=num_steps,
        seed=split.number,
        progress=False,
    )
    seconds = time.process_time() - start
    positions = jax.vmap(target.structure)(posterior.particles)
    return {"seconds": seconds, **judge(target, positions, split)}


def measure_rival(name: str, split: Split, num_steps: int) -> dict[str, float]:
    """A rival, after the choice of its rate with fewer networks on a tenth of the training rows."""
    run, rates = RIVALS[name]
    num_held_out = len(split.train) // 10
    held_out, rest = split.train[:num_held_out], split.train[num_held_out:]
    rate = best_rate(
        lambda target, rate: run(target, rate, num_steps, 0, NUM_TUNED),
        rates,
        split.target(rest),
        split.x[held_out],
        split.y[held_out],
    )
    target, start = split.target(split.train), time.process_time()
    positions = jax.block_until_ready(run(target, rate, num_steps, split.number))
    seconds = time.process_time() - start
    return {"seconds": seconds, "rate": rate, **judge(target, positions, split)}


METHODS = {
    "NVGD": measure_nvgd,
    **{name: functools.partial(measure_rival, name) for name in RIVALS},
}


def judge(target: nvgd.Target, positions: Any, split: Split) -> dict[str, float]:
    """Root mean square error, negative log likelihood and coverage of 90 % intervals."""
    x, y = split.x[split.test], split.y[split.test]
    model: Any = target.model
    found = model.predict(jax.random.key(0), positions, x, y=y, samples=False)
    is_inside = (found.quantiles[0.05] <= y) & (y <= found.quantiles[0.95])
    return {
        "rmse": float(np.sqrt(np.mean((found.mean - y) ** 2))),
        "nll": float(-np.mean(found.log_likelihood)),
        "coverage": float(np.mean(is_inside)),
    }


if __name__ == "__main__":
    main()
