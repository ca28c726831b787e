"""MNIST, shifted MNIST and outliers: NVGD beside SVGD, SGLD and a deep ensemble.

    python -m benchmarks.networks.shifts [--data-dir DIR] [--num-networks N] [--seeds K]

The convolutional network of `nvgd reproduce mnist` (4,594 weights, pixels in [0, 1], prior
N(0, .15²)), one epoch of 420 steps, batches of 128. NVGD is the untuned default. The rivals' rates
are chosen by the log likelihood of 2,000 validation images, with ten networks and as many steps.
The deep ensemble climbs the likelihood with Adam, whose rate falls to zero along a cosine, from the
same start. Measured on the first `--num-test` test images, which are also rotated and shifted.
Outliers are made from them: patches of 7 × 7 pixels in random order, and inverted digits; detection
is the area under the ROC curve of the prediction's entropy.
"""

import argparse
import dataclasses
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import nvgd
from benchmarks.mnist_parts import ScoreAlone
from nvgd._support.errors import InputError, RunStoppedWarning, check_count
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import markdown
from nvgd.experiments.classification import measures
from nvgd.experiments.mnist import Mnist, load
from nvgd.flow.particle_flow import ParticleFlow

NUM_TUNED, NUM_VALIDATION = 10, 2000
STEPS = 420
ENSEMBLE = "deep ensemble"
RATES = {
    "SVGD": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
    "SGLD": (1e-6, 3e-6, 1e-5, 3e-5, 1e-4),
    ENSEMBLE: (1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
}
METHODS = ("NVGD", *RATES)
SHIFTS = ("clean", "rotated by 15°", "rotated by 30°", "rotated by 45°", "shifted by 2", "by 4")
OUTLIERS = ("shuffled patches", "inverted digits")


def altered(images: np.ndarray) -> dict[str, np.ndarray]:
    """The images, rotated, shifted, and made into outliers."""
    from scipy.ndimage import rotate, shift

    made = {"clean": images}
    for name, angle in zip(SHIFTS[1:4], (15, 30, 45), strict=True):
        made[name] = rotate(images, angle, axes=(2, 1), reshape=False, order=1)
    for name, by in zip(SHIFTS[4:], (2, 4), strict=True):
        made[name] = shift(images, (0, by, by), order=0)
    generator = np.random.default_rng(0)
    patches = images.reshape(-1, 4, 7, 4, 7).swapaxes(2, 3).reshape(-1, 16, 7, 7)
    order = np.argsort(generator.random((len(images), 16)), axis=1)
    shuffled = np.take_along_axis(patches, order[:, :, None, None], axis=1)
    shuffled = shuffled.reshape(-1, 4, 4, 7, 7).swapaxes(2, 3).reshape(images.shape)
    return {**made, "shuffled patches": shuffled, "inverted digits": 255 - images}


def flow(method: str, rate: float) -> ParticleFlow:
    """A rival with this rate."""
    if method == ENSEMBLE:
        adam = optax.adam(optax.cosine_decay_schedule(rate, STEPS))
        return ParticleFlow(nvgd.coordinates.Identity(), ScoreAlone(), nvgd.movers.Optax(adam))
    name = "SVGD Adam" if method == "SVGD" else method
    return Mnist().flow(name, rate)


def _flat(parameters: Any) -> Any:
    """No prior: a deep ensemble climbs the likelihood."""
    return 0.0 * parameters[0]


def networks(experiment: Mnist, method: str, rate: float | None, num: int, seed: int) -> Any:
    """The networks after one epoch."""
    target = experiment.target(tuning=False)
    if method == ENSEMBLE:
        target = nvgd.Target(
            _flat,
            dim=target.dim,
            log_likelihood=target.log_likelihood,
            data=target.data.rows,  # pyright: ignore[reportOptionalMemberAccess]
            batch_size=target.batch_size,
            vectorised=True,
            particles_at_once=1,
        )
    initial = dataclasses.replace(experiment, num_particles=num).initial(jax.random.key(seed))
    with warnings.catch_warnings():
        # A rate that is too large ends a run; its networks are judged like others.
        warnings.simplefilter("ignore", RunStoppedWarning)
        posterior = nvgd.sample(
            target,
            None if rate is None else flow(method, rate),
            initial=initial,
            num_steps=STEPS,
            seed=seed,
            progress=False,
        )
    return posterior.particles


def best_rate(experiment: Mnist, method: str) -> float:
    """The rate with the largest log likelihood of validation images."""
    data, rates = load(experiment.data_dir), RATES[method]
    images, labels = data.images[:NUM_VALIDATION], data.labels[:NUM_VALIDATION].astype(int)

    def score(rate: float) -> float:
        particles = networks(experiment, method, rate, NUM_TUNED, 0)
        found = measures(experiment.probabilities(particles, images), labels)["log_likelihood"]
        return found if np.isfinite(found) else -np.inf

    return max(rates, key=score)


def judge(experiment: Mnist, particles: Any, images: np.ndarray, labels: np.ndarray) -> Any:
    """Measures of every altered set, and areas under the ROC curve of the outliers."""
    found: dict[str, Any] = {}
    entropies = {}
    for name, inputs in altered(images).items():
        probabilities = np.asarray(experiment.probabilities(particles, inputs), np.float64)
        entropies[name] = -np.sum(probabilities * np.log(probabilities + 1e-30), axis=1)
        if name in SHIFTS:
            found[name] = measures(probabilities, labels)
    for name in OUTLIERS:
        found[name] = {"area": area_under_curve(entropies["clean"], entropies[name])}
    return found


def area_under_curve(low: np.ndarray, high: np.ndarray) -> float:
    """Probability that a value of `high` exceeds one of `low`."""
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([low, high]))[len(low) :]
    return float((ranks.mean() - (len(high) + 1) / 2) / len(low))


def main() -> None:
    """Run what is missing in the records, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks.shifts")
    parser.add_argument("--data-dir", type=Path, help="as for nvgd reproduce mnist")
    parser.add_argument("--num-networks", type=int, default=50)
    parser.add_argument("--num-test", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/networks"))
    options = parser.parse_args()
    try:
        for name in ("num_networks", "num_test", "seeds"):
            check_count("--" + name.replace("_", "-"), getattr(options, name))
        path = output_directory(options.out, "--out") / "shifts.json"
        experiment = Mnist(data_dir=options.data_dir)
        test = load(options.data_dir).test
    except InputError as error:
        sys.exit(str(error))
    records: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    rates = {r["method"]: r["rate"] for r in records}
    done = {(r["method"], r["seed"]) for r in records}
    for seed in range(options.seeds):
        for method in METHODS:
            if (method, seed) in done:
                continue
            if method in RATES and method not in rates:
                rates[method] = best_rate(experiment, method)
            start = time.process_time()
            particles = networks(experiment, method, rates.get(method), options.num_networks, seed)
            jax.block_until_ready(jnp.asarray(particles))
            seconds = time.process_time() - start
            found = judge(
                experiment,
                particles,
                test.inputs[: options.num_test],
                test.labels[: options.num_test],
            )
            facts = {"method": method, "seed": seed, "rate": rates.get(method)}
            records.append({**facts, "seconds": seconds, "found": found})
            text = json.dumps(records, indent=1)
            write_atomically(path, lambda at, text=text: at.write_text(text))
            print(facts, round(seconds), found["clean"], flush=True)
    print(tables(records))


def tables(records: list[dict[str, Any]]) -> str:
    """Accuracy, log likelihood and calibration error per altered set, and detection."""
    methods = [m for m in METHODS if any(r["method"] == m for r in records)]

    def cell(method: str, name: str, measure: str) -> str:
        values = [r["found"][name][measure] for r in records if r["method"] == method]
        return f"{np.mean(values):.4f}"

    parts = []
    for measure in ("accuracy", "log_likelihood", "calibration_error"):
        lines = [[measure.replace("_", " "), *methods]]
        lines += [[name, *(cell(m, name, measure) for m in methods)] for name in SHIFTS]
        parts.append(markdown(lines))
    lines = [["detection", *methods]]
    lines += [[name, *(cell(m, name, "area") for m in methods)] for name in OUTLIERS]
    return "\n\n".join([*parts, markdown(lines)])


if __name__ == "__main__":
    main()
