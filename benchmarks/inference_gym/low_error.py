"""How many gradients NVGD takes to a low error of second moments.

    sh benchmarks/inference_gym/run.sh low_error [--only NAME ...] [--seeds K] [--most-steps N]

The measure of the sampler benchmarks of Robnik, Cohn-Gordon and Seljak (MAMS, 2025; github.com/
reubenharry/sampler-benchmarks), on seven of their targets: the error of an estimate is

    b² = max over scalars of (Ê[x²] − E[x²])² / Var(x²)

and its median over seeds falls below 0.01 at some number of gradients and stays there. Here every
gradient of every particle counts, tuning included, of as many particles as `sample` takes by
default. Each number of steps is a run of its own, from
`--least-steps` on by factors of two, since a run plans its stages by its length. Beside it stands
what they report for NUTS: gradients of one chain, and those of its tuning before.
"""

import argparse
import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import nvgd
from benchmarks.inference_gym.__main__ import constrained_draws
from benchmarks.inference_gym.references import gym_directory, reference
from benchmarks.inference_gym.targets import (
    BROWNIAN_MOTION,
    GymTarget,
    brownian_moments,
    load,
)
from nvgd._support.errors import InputError, check_choice, check_count
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import align

LOW = 0.01


@dataclasses.dataclass(frozen=True)
class Squares:
    """A target, and the moments of the squares of its constrained scalars."""

    target: GymTarget
    mean: Float[np.ndarray, " k"]
    variance: Float[np.ndarray, " k"]

    def error(self, draws: Float[np.ndarray, "n k"]) -> float:
        """b² of an estimate from draws."""
        return float(np.max((np.mean(draws**2, axis=0) - self.mean) ** 2 / self.variance))


def _plain(
    name: str,
    dim: int,
    log_density: Callable[[Array], Array],
    constrain: Callable[[Array], Array] = lambda z: z,
) -> GymTarget:
    return GymTarget(name, dim, log_density, constrain, None)


def banana(directory: Path) -> Squares:
    """x₀ ~ N(0, 10²), x₁ ~ N(0.03 (x₀² − 100), 1)."""

    def log_density(x):
        return -0.5 * ((x[0] / 10) ** 2 + (x[1] - 0.03 * (x[0] ** 2 - 100)) ** 2)

    # x₁ = 3u + w with u = χ²₁ − 1 and w ~ N(0, 1): E u² = 2, E u⁴ = 60.
    mean, fourth = np.array([100.0, 19.0]), np.array([3e4, 81 * 60 + 6 * 18 + 3])
    return Squares(_plain("banana", 2, log_density), mean, fourth - mean**2)


def ill_conditioned_gaussian(directory: Path) -> Squares:
    """100 independent normals, their variances spaced evenly in the logarithm from 0.1 to 10."""
    variances = np.logspace(-1, 1, 100)

    def log_density(x):
        return -0.5 * jnp.sum(x**2 / variances)

    return Squares(
        _plain("ill_conditioned_gaussian", 100, log_density), variances, 2 * variances**2
    )


def two_gaussians(directory: Path) -> Squares:
    """0.75 N(0, I) + 0.25 N((4, 0, …), 0.6² I) in 50 dimensions."""
    dim, weight, shift, sd = 50, 0.25, 4.0, 0.6
    centre = np.zeros(dim)
    centre[0] = shift

    def log_density(x):
        wide = jnp.log(1 - weight) - 0.5 * jnp.sum(x**2)
        narrow = jnp.log(weight) - dim * jnp.log(sd) - 0.5 * jnp.sum((x - centre) ** 2) / sd**2
        return jnp.logaddexp(wide, narrow)

    square = centre**2 + sd**2
    fourth = centre**4 + 6 * centre**2 * sd**2 + 3 * sd**4
    mean = (1 - weight) + weight * square
    return Squares(
        _plain("two_gaussians", dim, log_density),
        mean,
        3 * (1 - weight) + weight * fourth - mean**2,
    )


def neals_funnel(directory: Path) -> Squares:
    """θ ~ N(0, 3²) and 19 zᵢ ~ N(0, e^θ), judged by θ/3 and zᵢ e^(−θ/2), which are N(0, 1)."""
    dim = 20

    def log_density(x):
        z, theta = x[:-1], x[-1]
        prior = -0.5 * (theta / 3) ** 2
        return prior - 0.5 * (dim - 1) * theta - 0.5 * jnp.exp(-theta) * jnp.sum(z**2)

    def standardise(x):
        return jnp.append(x[:-1] * jnp.exp(-0.5 * x[-1]), x[-1] / 3)

    target = _plain("neals_funnel", dim, log_density, standardise)
    return Squares(target, np.ones(dim), np.full(dim, 2.0))


def stochastic_volatility(directory: Path) -> Squares:
    """A random walk of log scales of Student-t returns; σ ~ Exp(mean 0.02), ν ~ Exp(mean 10).

    The returns are those of the 2516 days of the Inference Gym, in per cent; theirs are of 2427
    days from NumPyro's collection, which would have to be downloaded.
    """
    from inference_gym.internal.datasets import (  # pyright: ignore[reportMissingImports]
        sp500_closing_prices,
    )

    returns = 100 * np.diff(np.log(np.asarray(sp500_closing_prices.CLOSING_PRICES, np.float64)))
    num_days = len(returns)

    def log_density(x):
        walk, log_sigma, log_nu = x[:-2], x[-2], x[-1]
        sigma, nu = 0.02 * jnp.exp(log_sigma), 10 * jnp.exp(log_nu)
        prior = log_sigma - jnp.exp(log_sigma) + log_nu - jnp.exp(log_nu)
        steps = jnp.diff(walk, prepend=0.0)
        moves = -num_days * jnp.log(sigma) - 0.5 * jnp.sum(steps**2) / sigma**2
        half = 0.5 * (nu + 1)
        constant = (
            jax.scipy.special.gammaln(half)
            - jax.scipy.special.gammaln(0.5 * nu)
            - 0.5 * jnp.log(nu)
        )
        tails = half * jnp.sum(jnp.log1p((returns * jnp.exp(-walk)) ** 2 / nu))
        return prior + moves + num_days * constant - jnp.sum(walk) - tails

    def constrain(x):
        return jnp.concatenate([x[:-2], 0.02 * jnp.exp(x[-2:-1]), 10 * jnp.exp(x[-1:])])

    target = _plain("student_stochastic_volatility", num_days + 2, log_density, constrain)
    made = reference(target, directory)
    if not made.is_trusted:
        print(
            f"stochastic_volatility: its reference is doubtful (R-hat {made.r_hat:.3g}, effective "
            f"size {made.effective_size:.0f}, {made.num_divergent} divergent)."
        )
    return Squares(target, made.mean_square, made.sd_square**2)


def brownian_motion(directory: Path) -> Squares:
    """The Inference Gym's, with unknown scales and without its middle observations."""
    exact = brownian_moments()
    return Squares(load([BROWNIAN_MOTION])[0], exact.mean_square, exact.sd_square**2)


def item_response(directory: Path) -> Squares:
    """The Inference Gym's, 400 students and 100 questions.

    Its scalars are nearly normal, for which Var(x²) follows from the shipped moments.
    """
    target = load(["item_response"])[0]
    assert target.truth is not None
    mean, variance = target.truth.mean, target.truth.sd**2
    return Squares(target, mean**2 + variance, 2 * variance**2 + 4 * mean**2 * variance)


TARGETS: dict[str, Callable[[Path], Squares]] = {
    "banana": banana,
    "ill_conditioned_gaussian": ill_conditioned_gaussian,
    "two_gaussians": two_gaussians,
    "neals_funnel": neals_funnel,
    "brownian_motion": brownian_motion,
    "item_response": item_response,
    "stochastic_volatility": stochastic_volatility,
}
# What their repository reports: gradients to a low error of the worst scalar, and of the tuning.
NUTS = {
    "banana": "111,691 + 39,453",
    "ill_conditioned_gaussian": "21,674 + 5,986",
    "two_gaussians": "248,728 + 40,044",
    "neals_funnel": "not reached",
    "brownian_motion": "33,462 + 13,157",
    "item_response": "71,758 + 22,453",
    "stochastic_volatility": "1,628,519 + 130,240",
}


def main() -> None:
    """Run what is missing in the records, and print the table."""
    parser = argparse.ArgumentParser(
        prog="sh benchmarks/inference_gym/run.sh low_error",
        description="Count NVGD's gradients to a low error of second moments.",
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", default=list(TARGETS), help=f"of {', '.join(TARGETS)}"
    )
    parser.add_argument("--seeds", type=int, default=4, metavar="K", help="seeds 0 to K − 1")
    parser.add_argument("--least-steps", type=int, default=100, metavar="N")
    parser.add_argument("--most-steps", type=int, default=3200, metavar="N")
    parser.add_argument("--out", type=Path, default=Path("results/low_error.json"))
    parser.add_argument("--cache-dir", type=Path, help="directory of the references")
    options = parser.parse_args()
    try:
        records = run(options)
    except InputError as error:
        parser.exit(2, f"{error}\n")
    print(table(records))


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The chosen records: read from the file, or made if they are missing."""
    check_count("--seeds", options.seeds)
    check_count("--least-steps", options.least_steps)
    for name in options.only:
        check_choice("--only", name, TARGETS)
    budgets = [options.least_steps]
    while 2 * budgets[-1] <= options.most_steps:
        budgets.append(2 * budgets[-1])
    directory = gym_directory(options.cache_dir)
    output_directory(options.out.parent)
    records = json.loads(options.out.read_text()) if options.out.exists() else []
    stored = {(row["target"], row["num_steps"], row["seed"]): row for row in records}
    wanted = []
    for name in options.only:
        squares = TARGETS[name](directory)
        for num_steps in budgets:
            for seed in range(options.seeds):
                task = (name, num_steps, seed)
                if task not in stored:
                    stored[task] = _record(name, squares, num_steps, seed)
                    text = json.dumps(list(stored.values()), indent=1)
                    write_atomically(options.out, lambda path, text=text: path.write_text(text))
                    row = stored[task]
                    print(f"{name}, {num_steps} steps, seed {seed}: {row['error']}", flush=True)
                wanted.append(stored[task])
        jax.clear_caches()
    return wanted


def _record(name: str, squares: Squares, num_steps: int, seed: int) -> dict[str, Any]:
    posterior = nvgd.sample(
        squares.target.for_nvgd(),
        num_steps=num_steps,
        seed=seed,
        progress=False,
    )
    error = squares.error(constrained_draws(posterior, len(squares.mean)))
    return {
        "target": name,
        "dim": squares.target.dim,
        "num_steps": num_steps,
        "seed": seed,
        "error": error if math.isfinite(error) else None,
        "num_gradients": int(posterior.history["num_gradients"][-1]),
    }


def table(records: Sequence[dict[str, Any]]) -> str:
    """One row per target: the gradients to a low error, and the median error of every budget."""
    budgets = sorted({row["num_steps"] for row in records})
    rows = [("target", "d", "NVGD", "NUTS", *(f"b² at {steps}" for steps in budgets))]
    for name in dict.fromkeys(row["target"] for row in records):
        own = [row for row in records if row["target"] == name]
        errors, spent = [], []
        for steps in budgets:
            runs = [row for row in own if row["num_steps"] == steps]
            found = [math.inf if row["error"] is None else row["error"] for row in runs]
            errors.append(float(np.median(found)))
            spent.append(float(np.median([row["num_gradients"] for row in runs])))
        too_high = [i for i, error in enumerate(errors) if not error < LOW]
        first = too_high[-1] + 1 if too_high else 0
        reached = f"{spent[first]:,.0f}" if first < len(budgets) else f"> {spent[-1]:,.0f}"
        rows.append(
            (
                name,
                str(own[0]["dim"]),
                reached,
                NUTS[name],
                *(f"{error:.2g}" for error in errors),
            )
        )
    return (
        f"{align(rows)}\n\nGradients of all particles until b² stays below {LOW}; b²: largest "
        "squared error of E[x²] over Var(x²), median over seeds, by number of steps."
    )


if __name__ == "__main__":
    main()
