"""What should stand in for −∇log q where there are fewer particles than weights?

    python -m benchmarks.networks.witnesses --data uci_regression.npz [--forms NAME ...]

Every form takes the place of the default's repulsion; coordinates, steps, batches and the number of
steps are the default's. Two questions, each with its own records in `--out`:

`small`: networks of 62 to 122 weights, for which long NUTS chains on all rows give the posterior.
Energy distance between the networks' predictions of the test rows and those of the chains, as a
multiple of that of as many draws of the chains; and root mean square error, negative log likelihood
and coverage of 90 % intervals on test rows.

`uci`: 100 networks of 50 units. The same measures on a tenth of the *training* rows of splits 10
and 11, so that no test row of the published tables takes part in a choice.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import nvgd
from benchmarks.mnist_parts import ScoreAlone
from benchmarks.networks.__main__ import SETS, Split, judge
from benchmarks.networks.references import ReferenceChains, nuts_chains
from benchmarks.networks.witness_forms import (
    FunctionSpace,
    LowRank,
    PreconditionedLangevin,
    SharedWitness,
    WithPast,
)
from nvgd._support.errors import InputError, check_count
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import markdown
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.stein.witnesses import MLP

# Units of the small networks. "sine" has one input and a gap in its rows.
SMALL = {"sine": 20, "yacht": 10, "boston": 8}
NUM_SMALL_PARTICLES = 50
UCI = ("boston", "wine", "energy")
TUNING_SPLITS = (10, 11)


def _in_place_of(direction: Any, mover: Any = None) -> ParticleFlow:
    default = nvgd.NVGD()
    return ParticleFlow(default.coordinates, direction, mover or default.mover)


def _layers(target: nvgd.Target) -> tuple[int, ...]:
    """The parameter array that every coordinate belongs to."""
    leaves = jax.tree.leaves(target.structure(jax.numpy.zeros(target.dim)))
    return tuple(np.repeat(np.arange(len(leaves)), [leaf.size for leaf in leaves]).tolist())


def _network(target: nvgd.Target) -> Any:
    witness = MLP(target.dim, width=64, depth=2, key=jax.random.key(1)).zeroed()
    return nvgd.NVGD(witness=witness).direction


FORMS: dict[str, Callable[[nvgd.Target], ParticleFlow]] = {
    "default": lambda target: nvgd.NVGD(),
    "no repulsion": lambda target: _in_place_of(ScoreAlone()),
    "Langevin noise": lambda target: _in_place_of(
        nvgd.directions.Langevin(), PreconditionedLangevin()
    ),
    "function space, kernel": lambda target: _in_place_of(FunctionSpace(kernel=True)),
    "function space, normal": lambda target: _in_place_of(FunctionSpace()),
    "low rank": lambda target: _in_place_of(LowRank()),
    "low rank, past": lambda target: _in_place_of(WithPast(LowRank())),
    "network": lambda target: _in_place_of(_network(target)),
    "network, past": lambda target: _in_place_of(WithPast(_network(target))),
    "subspace": lambda target: _in_place_of(
        nvgd.directions.Projected(
            nvgd.directions.Neural(width=64, learning_rate=1e-3, max_inner_steps=5, patience=10),
            rank=10,
        )
    ),
    "shared per layer": lambda target: _in_place_of(SharedWitness(_layers(target))),
}


def sine(number: int) -> Split:
    """A sine with noise .15 on 80 rows with a gap, and test rows that reach beyond them."""
    generator = np.random.default_rng(number)
    x = np.concatenate([generator.uniform(-3, -1, 40), generator.uniform(0.5, 3, 40)])
    x = np.concatenate([x, generator.uniform(-4, 4, 40)])
    y = np.sin(2 * x) + 0.15 * generator.standard_normal(len(x))
    return Split(x[:, None], y, np.arange(80), np.arange(80, 120), SMALL["sine"], number)


def small_split(name: str, data: Any) -> Split:
    """Split 0 of a set, with a small network."""
    if name == "sine":
        return sine(0)
    return Split.of(name, data[SETS[name]], 0)._replace(width=SMALL[name])


def predictions(target: nvgd.Target, particles: Any, x: np.ndarray) -> np.ndarray:
    """Outputs of every network for rows x, with the logarithm of its noise, in units of the sd."""
    model: Any = target.model
    rows = model.checked_inputs(x)

    def of(particle: Any) -> Any:
        position: Any = target.structure(particle)
        outputs = jax.vmap(model.network.apply, in_axes=(None, 0))(position["network"], rows)
        return jax.numpy.append(outputs.ravel(), position["log_noise"])

    return np.asarray(jax.jit(lambda particles: jax.lax.map(of, particles))(particles))


def make_reference(name: str, split: Split, directory: Path) -> dict[str, np.ndarray]:
    """Predictions of the test rows by NUTS chains, made on first use."""
    path = directory / f"{name}-chains.npz"
    if not path.is_file():
        target = split.target(split.train)
        start = time.process_time()
        chains: ReferenceChains = nuts_chains(target, num_draws=500, thin=2)
        seconds = time.process_time() - start
        flat = chains.draws.reshape(-1, target.dim)
        found = predictions(target, jax.numpy.asarray(flat), split.x[split.test])
        by_chain = found.reshape(*chains.draws.shape[:2], -1)
        r_hat = chains.r_hat(by_chain)
        facts = {"r_hat": r_hat, "seconds": seconds, "num_gradients": chains.num_gradients}
        arrays: Any = {"predictions": by_chain, "draws": chains.draws, **facts}
        write_atomically(path, lambda at: np.savez_compressed(at, **arrays))
        print(name, "R-hat", np.quantile(r_hat, (0.5, 0.9, 1.0)).round(3), f"{seconds:.0f} s")
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)


def measure_small(name: str, which: str, seed: int, data: Any, out: Path) -> dict[str, float]:
    """One run of a form on a small network."""
    split = small_split(name, data)
    reference = make_reference(name, split, out)
    target = split.target(split.train)
    start = time.process_time()
    posterior = _sample(target, which, NUM_SMALL_PARTICLES, seed)
    seconds = time.process_time() - start
    found = predictions(target, posterior.particles, split.x[split.test])
    every = reference["predictions"].reshape(-1, found.shape[1])
    scales = every.std(axis=0)
    order = np.random.default_rng(seed).permutation(len(every))
    exact, rest = every[order[:NUM_SMALL_PARTICLES]], every[order[NUM_SMALL_PARTICLES:]]
    distances = [
        float(nvgd.metrics.energy_distance(values / scales, rest / scales))
        for values in (found, exact)
    ]
    positions = jax.vmap(target.structure)(posterior.particles)
    spread = np.median(found.std(axis=0) / scales)
    return {
        "energy": distances[0],
        "exact": distances[1],
        "spread": float(spread),
        "seconds": seconds,
        **judge(target, positions, split),
    }


def measure_uci(name: str, which: str, number: int, data: Any, out: Path) -> dict[str, float]:
    """One run on nine tenths of the training rows of a split, judged on the other tenth."""
    del out
    split = Split.of(name, data[SETS[name]], number)
    count = len(split.train) // 10
    inner = split._replace(train=split.train[count:], test=split.train[:count])
    target = inner.target(inner.train)
    start = time.process_time()
    posterior = _sample(target, which, 100, number)
    seconds = time.process_time() - start
    positions = jax.vmap(target.structure)(posterior.particles)
    return {"seconds": seconds, **judge(target, positions, inner)}


def _sample(target: nvgd.Target, which: str, num_particles: int, seed: int) -> nvgd.Posterior:
    flow = FORMS[which](target)
    return nvgd.sample(target, flow, num_particles=num_particles, seed=seed, progress=False)


PARTS = {
    "small": (tuple(SMALL), (0, 1, 2), measure_small),
    "uci": (UCI, TUNING_SPLITS, measure_uci),
}


def main() -> None:
    """Run what is missing in the records, and write them and a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks.witnesses")
    parser.add_argument("--data", type=Path, required=True, help="the file with the data sets")
    parser.add_argument("--part", choices=list(PARTS), default="small")
    parser.add_argument("--sets", nargs="+", help="those of the part if omitted")
    parser.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--seeds", type=int, help="the first so many seeds or splits; all")
    parser.add_argument("--out", type=Path, default=Path("results/networks/witnesses"))
    options = parser.parse_args()
    sets, seeds, measure = PARTS[options.part]
    try:
        if options.seeds is not None:
            check_count("--seeds", options.seeds)
        out = output_directory(options.out, "--out")
    except InputError as error:
        sys.exit(str(error))
    path = out / f"{options.part}.json"
    records: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    done = {(r["set"], r["form"], r["seed"]) for r in records}
    with np.load(options.data, allow_pickle=False) as data:
        for name, which, seed in itertools.product(
            options.sets or sets, options.forms, seeds[: options.seeds]
        ):
            if (name, which, seed) in done:
                continue
            found = measure(name, which, seed, data, out)
            records.append({"set": name, "form": which, "seed": seed, **found})
            text = json.dumps(records, indent=1)
            write_atomically(path, lambda at, text=text: at.write_text(text))
            print({k: round(v, 4) if isinstance(v, float) else v for k, v in records[-1].items()})
            sys.stdout.flush()
    print(table(records))


def table(records: list[dict[str, Any]]) -> str:
    """Means over seeds, one line per form and set."""
    measures = [m for m in ("energy", "spread", "nll", "rmse", "coverage") if m in records[0]]
    lines = [["set", "form", "runs", *measures, "seconds"]]
    for name, which in itertools.product(
        dict.fromkeys(r["set"] for r in records), dict.fromkeys(r["form"] for r in records)
    ):
        rows = [r for r in records if (r["set"], r["form"]) == (name, which)]
        if not rows:
            continue
        cells = []
        for measure in measures:
            values = np.array([r[measure] for r in rows])
            if measure == "energy":
                values /= np.mean([r["exact"] for r in records if r["set"] == name])
            cells.append(f"{values.mean():.3f} ± {values.std():.3f}")
        seconds = f"{np.median([r['seconds'] for r in rows]):.0f}"
        lines.append([name, which, str(len(rows)), *cells, seconds])
    return markdown(lines)


if __name__ == "__main__":
    main()
