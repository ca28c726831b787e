"""Whether the advice of the verdict helps: it is followed until a run converges, or none is left.

python -m benchmarks.diagnostics.advice [--only TEXT ...] [--seed S]

The arguments that an advice names, such as `max_steps=2000` or `NVGD()`, replace those of the call.
"""

import argparse
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import nvgd
from benchmarks.diagnostics.cases import BANANA, PAPER, TEN, UNIT
from nvgd._support.tables import markdown
from nvgd.densities import AbstractDensity, Funnel, Gaussian, GaussianMixture

# Runs at most, the first one included.
MOST_RUNS = 4
# Draws to compare with, and the largest errors of a good run.
NUM_EXACT = 20_000
LARGEST_SHIFT, SD_RATIOS = 0.3, (0.8, 1.25)


class Call(NamedTuple):
    """A first call that goes wrong."""

    name: str
    log_density: Callable[..., Any]
    dim: int
    exact: AbstractDensity | None
    """The same density with exact draws; None if it is improper."""
    options: dict[str, Any]


def calls() -> list[Call]:
    """Runs that are too short, of the wrong method, or on a density that cannot be sampled."""
    far, fifty = Gaussian([10.0, 0.0], [1.0, 1.0]), Gaussian(np.zeros(50), np.ones(50))
    modes, funnel = GaussianMixture(), Funnel(10)
    ula, ascent = nvgd.ULA(0.02), nvgd.SVGD(5.0)
    few = {"num_particles": 50, "num_steps": 600}
    proper = [
        ("ULA, normal, 20 steps", UNIT, {"flow": ula, "num_steps": 20}),
        ("ULA, tiny steps", TEN, {"flow": nvgd.ULA(1e-6), "num_steps": 200}),
        ("the paper's, far away", far, {"flow": PAPER, "num_steps": 100}),
        ("SVGD, banana, 40 steps", BANANA, {"flow": nvgd.SVGD(0.3), "num_steps": 40}),
        ("SVGD, d = 50, n = 50", fifty, {"flow": ascent, **few}),
        ("funnel, d = 10, 500 steps", funnel, {"num_steps": 500}),
        ("two modes, 500 steps", modes, {"num_steps": 500}),
        ("ULA, variance × 1.6", UNIT, {"flow": nvgd.ULA(0.75), "num_steps": 300}),
    ]
    made = [Call(name, each.log_density, each.dim, each, given) for name, each, given in proper]
    flat = Call("improper", lambda x: -0.5 * x[0] ** 2, 2, None, {"max_steps": 1000})
    return [*made, flat]


def followed(options: dict[str, Any], advice: str) -> dict[str, Any] | None:
    """The options of the next call; None if the advice names no argument of `sample`."""
    found: dict[str, Any] = {
        name: int(value) for name, value in re.findall(r"(num_steps|max_steps)=(\d+)", advice)
    }
    if "NVGD()" in advice:
        found["flow"] = nvgd.NVGD()
    if "initial='laplace'" in advice:
        found["initial"] = "laplace"
    if not found:
        return None
    merged = {**options, **found}
    if "num_steps" not in found and ("max_steps" in found or "flow" in found):
        merged.pop("num_steps", None)
    return merged


def follow(call: Call, seed: int) -> tuple[str, ...]:
    """The verdicts in order, the steps of the last run, and whether it is good."""
    options: dict[str, Any] | None = call.options
    target = nvgd.Target(call.log_density, call.dim)
    verdicts, posterior = [], None
    while options is not None and len(verdicts) < MOST_RUNS:
        posterior = nvgd.sample(target, seed=seed, progress=False, **options)
        diagnosis = posterior.diagnose()
        verdicts.append(diagnosis.verdict)
        options = None if diagnosis.converged else followed(options, diagnosis.advice)
    assert posterior is not None
    is_good = call.exact is not None and _is_good(posterior, call.exact)
    quality = "good" if is_good else "no density" if call.exact is None else "bad"
    return call.name, " → ".join(verdicts), str(posterior.num_steps), quality


def _is_good(posterior: nvgd.Posterior, density: AbstractDensity) -> bool:
    exact = np.asarray(density.sample(jax.random.key(1), NUM_EXACT), np.float64)
    drawn = np.asarray(posterior.draws["x"], np.float64).reshape(-1, density.dim)
    centre, scale = np.median(exact, axis=0), exact.std(axis=0)
    shift = np.abs(np.median(drawn, axis=0) - centre) / scale
    ratios = _widths(drawn) / _widths(exact)
    is_wide = np.all((ratios > SD_RATIOS[0]) & (ratios < SD_RATIOS[1]))
    return bool(np.all(shift < LARGEST_SHIFT) and is_wide)


def _widths(draws: np.ndarray) -> np.ndarray:
    """Distances between the 5 % and 95 % quantiles, which heavy tails hardly move."""
    low, high = np.quantile(draws, (0.05, 0.95), axis=0)
    return high - low


def main() -> None:
    """Follow the advice on every chosen call, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.diagnostics.advice", description="Whether the advice helps."
    )
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="parts of names")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    rows = [("first call", "verdicts", "steps", "last run")]
    for call in calls():
        if any(text in call.name for text in options.only):
            rows.append(follow(call, options.seed))
            print(" | ".join(rows[-1]), flush=True)
            jax.clear_caches()
    print(markdown(rows))


if __name__ == "__main__":
    main()
