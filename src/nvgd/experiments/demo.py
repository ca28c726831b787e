"""The two-dimensional funnel, sampled by NVGD, SVGD and Langevin dynamics."""

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from nvgd._support.errors import check_count, check_positive
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import align, mean_and_deviation
from nvgd.evaluation.curved_densities import Funnel
from nvgd.evaluation.distances import Reference
from nvgd.experiments.demo_figure import MethodResult, draw
from nvgd.experiments.figures import end_of_flow, save_figure
from nvgd.experiments.funnel_frames import Frame, take_frame
from nvgd.experiments.funnel_measures import IN_FIGURES, NUM_EXACT_SAMPLES, NUM_REFERENCE_DRAWS
from nvgd.experiments.methods import DEFAULT, EXACT, LANGEVIN, PAPER, SLOW_LANGEVIN
from nvgd.flow.methods import NVGD, SVGD, ULA
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.posterior.posterior import Posterior
from nvgd.running.sampling import sample_or_interrupt

# Points of the curves, and frames of the animation.
NUM_FRAMES = 60


@dataclasses.dataclass(frozen=True)
class Demo:
    """Compare NVGD with SVGD and Langevin dynamics on the 2-D funnel: table, figure, animation."""

    out: Path = Path("demo-results")
    """Directory for demo.png, demo.gif and demo.json."""
    num_particles: int = 100
    """Particles of every method."""
    num_steps: int = 2000
    """Steps of every method, with one gradient per particle each."""
    step_size: float = 1e-2
    """ε of the paper's NVGD and ULA; ULA also runs at ε/5, rescaled SVGD at 5ε, as in the paper."""
    num_seeds: int = 5
    """Independent runs of every method."""

    def __post_init__(self):
        check_count("num_particles", self.num_particles, minimum=2)
        check_count("num_steps", self.num_steps)
        check_positive("step_size", self.step_size)
        check_count("num_seeds", self.num_seeds)

    def flows(self) -> dict[str, ParticleFlow]:
        """The library's default, and the methods of the paper with its settings."""
        return {
            DEFAULT: NVGD(),
            PAPER: NVGD.paper(self.step_size),
            "SVGD": SVGD(5 * self.step_size, rescale=True),
            LANGEVIN: ULA(self.step_size),
            SLOW_LANGEVIN: ULA(self.step_size / 5),
        }


def run(config: Demo) -> None:
    """Run every method, print the table, write the figure, the animation and the records."""
    from tqdm import tqdm

    from nvgd.experiments.funnel_figures import animate

    out = output_directory(config.out)
    funnel = Funnel(2)
    reference = Reference(funnel.sample(jax.random.key(2), NUM_REFERENCE_DRAWS))
    flows = config.flows()
    frames: list[Frame] = []
    results: dict[str, MethodResult] = {}
    num_runs = len(flows) * config.num_seeds
    print(f"Funnel in 2 dimensions, {config.num_particles} particles, {config.num_steps} steps.")
    with tqdm(total=num_runs * config.num_steps, unit="step", disable=None) as bar:
        for name, flow in flows.items():
            runs = []
            for seed in range(config.num_seeds):
                bar.set_description(f"{name}, run {seed + 1} of {config.num_seeds}")
                start, has_frames = bar.n, name == PAPER and seed == 0

                def watch(state: Any, start: int = start, has_frames: bool = has_frames) -> None:
                    bar.update(start + int(state.step) - bar.n)
                    if has_frames:
                        frames.append(take_frame(state))

                started = time.perf_counter()
                posterior = sample_or_interrupt(
                    funnel.log_density,
                    flow,
                    dim=2,
                    num_particles=config.num_particles,
                    num_steps=config.num_steps,
                    seed=seed,
                    metrics=_measures(reference),
                    metrics_every=max(config.num_steps // NUM_FRAMES, 1),
                    callback=watch,
                    progress=False,
                )
                runs.append((posterior, time.perf_counter() - started))
            results[name] = _collect(runs)
    exact = _exact(funnel, config, reference)
    print(_table(results, exact))
    print(_NOTE.format(num_particles=config.num_particles))
    write_atomically(
        out / "demo.json", lambda path: path.write_text(_records(config, results, exact))
    )
    save_figure(draw(results, exact, IN_FIGURES), out / "demo.png")
    print("Drawing the animation ...", flush=True)
    write_atomically(out / "demo.gif", lambda path: animate(frames, funnel, path))
    print(f"Wrote demo.png, demo.gif and demo.json to {out}.")


def _measures(reference: Reference) -> dict[str, Callable[[Array], Array]]:
    return {"energy": reference.energy_distance, "mmd": reference.mmd_squared}


def _collect(runs: list[tuple[Posterior, float]]) -> MethodResult:
    posteriors = [posterior for posterior, _ in runs]
    # A run that stopped early has a shorter curve: all curves end with the shortest.
    length = min(len(posterior.metrics["step"]) for posterior in posteriors)
    return MethodResult(
        particles=np.stack([posterior.particles for posterior in posteriors]),
        steps=posteriors[0].metrics["step"][:length],
        curves={
            name: np.stack([posterior.metrics[name][:length] for posterior in posteriors])
            for name in IN_FIGURES
        },
        seconds=np.array([seconds for _, seconds in runs]),
        flow_until=end_of_flow(posteriors[0].stages),
    )


def _exact(funnel: Funnel, config: Demo, reference: Reference) -> MethodResult:
    """Independent exact samples of the same size, for comparison."""
    draws = [
        funnel.sample(jax.random.key(1000 + i), config.num_particles)
        for i in range(NUM_EXACT_SAMPLES)
    ]
    return MethodResult(
        particles=np.stack(draws),
        steps=np.zeros(1),
        curves={
            name: np.array([[measure(x)] for x in draws])
            for name, measure in _measures(reference).items()
        },
        seconds=np.zeros(NUM_EXACT_SAMPLES),
    )


def _summary(result: MethodResult) -> dict[str, np.ndarray]:
    """The quantities of the table, one value per run."""
    first = result.particles[:, :, 0]
    return {
        **{label: result.curves[name][:, -1] for name, label in IN_FIGURES.items()},
        "mean of x₁": first.mean(axis=1),
        "sd of x₁": first.std(axis=1),
    }


def _table(results: dict[str, MethodResult], exact: MethodResult) -> str:
    digits = {"energy distance": 3, "MMD²": 4, "mean of x₁": 2, "sd of x₁": 2}
    lines = [["", *digits, "first run, s", "next runs, s"]]
    for name, result in {**results, EXACT: exact}.items():
        cells = [
            mean_and_deviation(values, digits[column])
            for column, values in _summary(result).items()
        ]
        lines.append([name, *cells, *_times(result.seconds if name != EXACT else None)])
    return align(lines)


_NOTE = """
energy distance: to 5,000 exact draws; 0 is perfect. Below the value of "exact sample", which is
  {num_particles} independent draws, particles are spread more evenly than independent draws.
MMD²: another distance, which does not see the narrow neck of the funnel.
x₁: the truth has mean 0 and standard deviation 3. All: mean ± standard deviation over runs.
first run: with compilation, or with reading compiled programs from disk; next runs: their median.
"""


def _times(seconds: np.ndarray | None) -> tuple[str, str]:
    if seconds is None:
        return "", ""
    return f"{seconds[0]:.1f}", f"{np.median(seconds[1:]):.1f}" if len(seconds) > 1 else ""


def _records(config: Demo, results: dict[str, MethodResult], exact: MethodResult) -> str:
    settings = {**dataclasses.asdict(config), "out": str(config.out)}
    methods = {
        name: {
            "summary": {name: values.tolist() for name, values in _summary(result).items()},
            "seconds": result.seconds.tolist(),
            "steps": result.steps.tolist(),
            "flow_until": result.flow_until,
            "curves": {name: values.tolist() for name, values in result.curves.items()},
        }
        for name, result in results.items()
    }
    exact_summary = {name: values.tolist() for name, values in _summary(exact).items()}
    records = {"settings": settings, "methods": methods, EXACT: {"summary": exact_summary}}
    return json.dumps(records, indent=1)
