"""Known densities with noisy scores: three targets, seven kinds of noise.

python -m benchmarks.minibatches.noises [--only NOISE ...] [--out FILE]

After the "analytical" benchmark of SMILE (arXiv 2602.06500): d = 10, N = 409,600, batches of 256.
Every row i has the log likelihood log p(θ)/N + c·εᵢ·h(θ), where the εᵢ sum to zero. Then all rows
give log p, and the noise of a batch's score has 40 times the size of a score, as it would have for
that many independent rows. The error is the mean over coordinates of (E[x²] − truth)²/Var[x²].
"""

import argparse
import functools
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nvgd
from benchmarks.minibatches.rivals import NUM_LEAPFROG, NUM_PARTICLES, best_setting
from nvgd._support.errors import InputError, check_choice
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import align

DIM, NUM_ROWS, BATCH_SIZE = 10, 409_600, 256
NUM_EXACT = 200_000
# Steps of the rivals for each step size; a run of NVGD takes 1,200 or more.
NUM_STEPS = 1200
# Step sizes of SGLD and SGHMC, of which every cell takes the best; further ones where an end is.
STEP_SIZES = (1e-5, 1e-4, 1e-3, 1e-2)


class Banana:
    """A banana in two coordinates, and standard normal ones."""

    def __init__(self):
        self._two = nvgd.densities.Banana()

    def log_density(self, theta: Any) -> Any:
        """Log density at one position."""
        return self._two.log_density(theta[:2]) - 0.5 * jnp.sum(theta[2:] ** 2)

    def sample(self, key: Any, num: int) -> Any:
        """Exact draws."""
        own, others = jax.random.split(key)
        rest = jax.random.normal(others, (num, DIM - 2))
        return jnp.concatenate([self._two.sample(own, num), rest], axis=1)


DENSITIES: dict[str, Callable[[], Any]] = {
    "Gaussian": lambda: nvgd.densities.Gaussian(np.zeros(DIM), np.diag(np.geomspace(0.01, 1, DIM))),
    "banana": Banana,
    "funnel": lambda: nvgd.densities.Funnel(DIM),
}


def _isotropic(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(NUM_ROWS, DIM))


def _anisotropic(rng: np.random.Generator) -> np.ndarray:
    return _isotropic(rng) * np.geomspace(0.1, 3.0, DIM)


def _correlated(rng: np.random.Generator) -> np.ndarray:
    return 0.5 * _isotropic(rng) + rng.normal(size=(NUM_ROWS, 1))


def _laplace(rng: np.random.Generator) -> np.ndarray:
    return rng.laplace(scale=0.5**0.5, size=(NUM_ROWS, DIM))


def _student_t(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_t(3, size=(NUM_ROWS, DIM)) / 3**0.5


def _lognormal(rng: np.random.Generator) -> np.ndarray:
    return (np.exp(rng.normal(size=(NUM_ROWS, DIM))) - np.exp(0.5)) / 2.161


NOISES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "isotropic": _isotropic,
    "anisotropic": _anisotropic,
    "correlated": _correlated,
    "varying": _isotropic,
    "Laplace": _laplace,
    "Student-t": _student_t,
    "lognormal": _lognormal,
}


def noisy_target(density: Any, noise: str, **options: Any) -> nvgd.Target:
    """The density, as the posterior of rows with noise."""
    rows = NOISES[noise](np.random.default_rng(0))
    rows = (rows - rows.mean(axis=0)) / NUM_ROWS**0.5
    # The size of the noise grows with the distance from zero.
    bend = (
        (lambda theta: 2 * theta - jnp.arcsinh(theta))
        if noise == "varying"
        else (lambda theta: theta)
    )

    def log_likelihood(theta: Any, row: Any) -> Any:
        return density.log_density(theta) / NUM_ROWS + row @ bend(theta)

    return nvgd.Target(
        lambda theta: jnp.zeros(()),
        dim=DIM,
        log_likelihood=log_likelihood,
        data=rows.astype(np.float32),
        batch_size=BATCH_SIZE,
        **options,
    )


def error(density: Any, draws: np.ndarray) -> float:
    """Mean over coordinates of the squared error of E[x²], over the variance of x²."""
    exact = np.asarray(density.sample(jax.random.key(99), NUM_EXACT), np.float64) ** 2
    found = np.mean(np.asarray(draws, np.float64) ** 2, axis=0)
    value = float(np.mean((found - exact.mean(axis=0)) ** 2 / exact.var(axis=0)))
    return value if np.isfinite(value) else float("inf")


def langevin(target: nvgd.Target, size: float) -> np.ndarray:
    """SGLD: the states of the second half."""
    posterior = nvgd.sample(
        target,
        nvgd.SGLD(size),
        num_particles=NUM_PARTICLES,
        num_steps=NUM_STEPS,
        thin=NUM_STEPS // 20,
        progress=False,
    )
    states = np.asarray(posterior.flat_positions).reshape(NUM_PARTICLES, -1, DIM)
    return states[:, states.shape[1] // 2 :].reshape(-1, DIM)


def hamiltonian(target: nvgd.Target, size: float) -> np.ndarray:
    """BlackJAX's SGHMC: the states of the second half."""
    import blackjax  # pyright: ignore[reportMissingImports]

    def gradient(theta: Any, rows: Any) -> Any:
        return jax.grad(lambda at: target.log_density(at, target.batch(rows)))(theta)

    algorithm = blackjax.sghmc(gradient, NUM_LEAPFROG)

    @jax.jit
    def states(start: Any, keys: Any) -> Any:
        def step(state: Any, key: Any) -> tuple[Any, Any]:
            rows_key, own = jax.random.split(key)
            rows = jax.random.choice(rows_key, NUM_ROWS, (BATCH_SIZE,))
            keys = jax.random.split(own, NUM_PARTICLES)
            move = functools.partial(algorithm.step, minibatch=rows, step_size=size)
            moved = jax.vmap(lambda key, theta: move(key, theta))(keys, state)
            return moved, moved

        return jax.lax.scan(step, start, keys)[1]

    start = jax.random.normal(jax.random.key(0), (NUM_PARTICLES, DIM))
    keys = jax.random.split(jax.random.key(1), NUM_STEPS // NUM_LEAPFROG)
    return np.asarray(states(start, keys))[len(keys) // 2 :].reshape(-1, DIM)


RIVALS = {"SGLD": langevin, "SGHMC": hamiltonian}


def main() -> None:
    """Run what is missing in the records, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.minibatches.noises",
        description="Known densities with seven kinds of noise in the scores.",
    )
    parser.add_argument("--only", nargs="+", metavar="NOISE", help=f"of {', '.join(NOISES)}")
    parser.add_argument("--out", type=Path, default=Path("results/noises.json"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    try:
        for name in options.only or ():
            check_choice("--only", name, NOISES)
        output_directory(options.out.parent)
    except InputError as problem:
        parser.exit(2, f"{problem}\n")
    records = json.loads(options.out.read_text()) if options.out.is_file() else []
    done = {(row["density"], row["noise"], row["method"]) for row in records}
    for name, build in DENSITIES.items():
        density = build()
        for noise in options.only or NOISES:
            target = noisy_target(density, noise)
            for method in ("NVGD", *RIVALS):
                if (name, noise, method) in done:
                    continue
                started = time.process_time()
                record = {"density": name, "noise": noise, "method": method}
                record |= _measure(density, target, method)
                record["cpu_seconds"] = round(time.process_time() - started, 1)
                records.append(record)
                print(json.dumps(record), flush=True)
                text = json.dumps(records, indent=1) + "\n"
                write_atomically(options.out, lambda path, text=text: path.write_text(text))
            jax.clear_caches()
    print(table(records))


def _measure(density: Any, target: nvgd.Target, method: str) -> dict[str, Any]:
    if method == "NVGD":
        posterior = nvgd.sample(target, progress=False)
        value = error(density, posterior.flat_positions)
        verdict, number = posterior.diagnose().verdict, posterior.num_steps
        return {"error": value, "verdict": verdict, "num_steps": number}
    found: dict[float, float] = {}

    def measure(size: float) -> float:
        found[size] = error(density, RIVALS[method](target, size))
        return found[size]

    best = best_setting(measure, STEP_SIZES)
    return {"error": found[best], "step_size": best, "num_settings": len(found)}


def table(records: list[dict[str, Any]]) -> str:
    """One row per density and noise."""
    methods = ("NVGD", *RIVALS)
    rows = [("target", "noise", *methods)]
    by_cell = {(r["density"], r["noise"], r["method"]): r["error"] for r in records}
    for name, noise in dict.fromkeys((r["density"], r["noise"]) for r in records):
        values = [by_cell.get((name, noise, method)) for method in methods]
        rows.append((name, noise, *("" if v is None else f"{v:.2g}" for v in values)))
    return align(rows)


if __name__ == "__main__":
    main()
