"""The default on funnels, compared with SVGD and ULA at their best step sizes.

python -m benchmarks.funnels [--dims D ...] [--seeds K] [--steps N ...] [--out FILE]
"""

import argparse
import itertools
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import nvgd
from nvgd._support.errors import InputError, check_count
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import markdown, mean_and_deviation
from nvgd.experiments.funnel_measures import NUM_EXACT_SAMPLES, funnel_measures

NUM_PARTICLES = 200
STEP_SIZES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
RIVALS = {"SVGD": nvgd.SVGD, "ULA": nvgd.ULA}
MEASURES = ("energy", "ks")


class TurnedFunnel(eqx.Module):
    """x ↦ log p(Rx), so that the driver is not a coordinate; all R share one compiled program."""

    funnel: nvgd.densities.Funnel
    rotation: Float[Array, "d d"]

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """The funnel's log density at Rx."""
        return self.funnel.log_density(self.rotation @ x)


def main() -> None:
    """Run what is missing in the records, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.funnels", description=__doc__)
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 5, 10, 20, 40], metavar="D")
    parser.add_argument("--steps", type=int, nargs="+", default=[500, 2000], metavar="N")
    parser.add_argument("--seeds", type=int, default=10, metavar="K", help="seeds 0 to K − 1")
    parser.add_argument("--out", type=Path, default=Path("results/funnels.json"))
    options = parser.parse_args()
    try:
        check_count("--seeds", options.seeds)
        for dim in options.dims:
            check_count("--dims", dim, minimum=2)
        for num_steps in options.steps:
            check_count("--steps", num_steps)
        output_directory(options.out.parent)
        records = _read(options.out)
        for name, task in _tasks(options):
            if name not in records:
                started = time.perf_counter()
                records[name] = {**_run(*task), "seconds": time.perf_counter() - started}
                text = json.dumps(records, indent=1)
                write_atomically(options.out, lambda path, text=text: path.write_text(text))
                print(f"{name}: energy {records[name]['energy']:.3f}", flush=True)
    except InputError as error:
        parser.exit(2, f"{error}\n")
    print(table(records, options.dims, options.steps, options.seeds))


def _tasks(options: argparse.Namespace) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Names and arguments of `_run`; consecutive seeds share a compiled program."""
    for dim, num_steps in itertools.product(options.dims, options.steps):
        for method in ("NVGD", "NVGD turned", *RIVALS):
            # SVGD and ULA are invariant under rotations and run once.
            for step_size in STEP_SIZES if method in RIVALS else (None,):
                for seed in range(options.seeds):
                    name = f"{dim}/{num_steps}/{method}/{step_size}/{seed}"
                    yield name, (dim, num_steps, method, step_size, seed)


def _run(
    dim: int, num_steps: int, method: str, step_size: float | None, seed: int
) -> dict[str, float]:
    rotation = jnp.eye(dim)
    if method.endswith("turned"):
        rotation = jnp.linalg.qr(jax.random.normal(jax.random.key(1000 + seed), (dim, dim)))[0]
    flow = RIVALS[method](jnp.asarray(step_size)) if method in RIVALS else nvgd.NVGD()
    with warnings.catch_warnings():
        # A run that stops early counts as the worst of its step sizes.
        warnings.simplefilter("ignore", nvgd.RunStoppedWarning)
        posterior = nvgd.sample(
            TurnedFunnel(nvgd.densities.Funnel(dim), rotation),
            flow,
            dim=dim,
            num_particles=NUM_PARTICLES,
            num_steps=num_steps,
            seed=seed,
            progress=False,
        )
    if not posterior.completed:
        return {"energy": 1e9, "ks": 1.0, "sd": 0.0}
    particles = posterior.particles @ rotation.T
    values = funnel_measures(dim)(particles)
    return {
        **{name: float(values[name]) for name in MEASURES},
        "sd": float(particles[:, 0].std()),
    }


def _read(path: Path) -> dict[str, dict[str, float]]:
    if not path.exists():
        return {}
    try:
        return dict(json.loads(path.read_text()))
    except ValueError as error:
        raise InputError(
            f"--out must be new or hold the records of an earlier run, got {str(path)!r}."
        ) from error


def table(
    records: dict[str, dict[str, float]], dims: list[int], steps: list[int], seeds: int
) -> str:
    """Means over seeds; of SVGD and ULA the step size with the smallest mean energy distance."""
    lines = [["d", "steps", "", "energy", "KS of x₁", "sd of x₁ (3)"]]
    for dim, num_steps in itertools.product(dims, steps):
        for method in ("NVGD", "NVGD turned", *RIVALS):
            sizes = STEP_SIZES if method in RIVALS else (None,)
            runs = {
                size: [records[f"{dim}/{num_steps}/{method}/{size}/{s}"] for s in range(seeds)]
                for size in sizes
            }
            best = min(runs, key=lambda size: np.mean([run["energy"] for run in runs[size]]))
            cells = [
                mean_and_deviation([run[name] for run in runs[best]], digits)
                for name, digits in (("energy", 3), ("ks", 3), ("sd", 2))
            ]
            label = method if best is None else f"{method}, ε = {best:g}"
            lines.append([str(dim), str(num_steps), label, *cells])
        exact = [_exact(dim, i) for i in range(NUM_EXACT_SAMPLES)]
        cells = [mean_and_deviation([v[name] for v in exact], 3) for name in MEASURES]
        lines.append([str(dim), "", f"{NUM_PARTICLES} exact draws", *cells, "3"])
    return (
        f"{markdown(lines)}\n\nMean ± standard deviation over {seeds} seeds, {NUM_PARTICLES} "
        "particles from N(0, I). Turned: coordinates rotated at random, undone to measure. "
        f"SVGD, ULA: the best of the step sizes {', '.join(f'{s:g}' for s in STEP_SIZES)}."
    )


def _exact(dim: int, index: int) -> dict[str, float]:
    draws = nvgd.densities.Funnel(dim).sample(jax.random.key(2**30 + index), NUM_PARTICLES)
    values = funnel_measures(dim)(draws)
    return {name: float(values[name]) for name in MEASURES}


if __name__ == "__main__":
    main()
