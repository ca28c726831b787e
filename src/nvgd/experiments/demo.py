"""The two-dimensional funnel, sampled by NVGD, SVGD and Langevin dynamics."""

import dataclasses
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from nvgd._support.errors import check_count, check_positive
from nvgd._support.files import output_directory, write_atomically
from nvgd._support.tables import align, mean_and_deviation
from nvgd.evaluation.densities import Funnel
from nvgd.evaluation.distances import Reference
from nvgd.experiments.figures import band, mark_exact, save_figure
from nvgd.experiments.funnel_frames import Frame, take_frame
from nvgd.experiments.funnel_measures import NUM_EXACT_SAMPLES, NUM_REFERENCE_DRAWS
from nvgd.experiments.methods import COLOURS, DEFAULT, EXACT, PAPER
from nvgd.flow.methods import NVGD, SVGD, ULA
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.running.sampling import sample_or_interrupt

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Points of the MMD curves, and frames of the animation.
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
        """The methods of the paper with its settings, and the library's default."""
        return {
            PAPER: NVGD.paper(self.step_size),
            DEFAULT: NVGD(),
            "SVGD": SVGD(5 * self.step_size, rescale=True),
            "pULA ε": ULA(self.step_size),
            "pULA ε/5": ULA(self.step_size / 5),
        }


class MethodResult(NamedTuple):
    """All runs of one method; the leading axis is that of the seeds."""

    particles: np.ndarray
    steps: np.ndarray
    mmd_curves: np.ndarray
    mmd: np.ndarray
    energy: np.ndarray
    seconds: np.ndarray


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
                    metrics={"mmd": reference.mmd_squared},
                    metrics_every=max(config.num_steps // NUM_FRAMES, 1),
                    callback=watch,
                    progress=False,
                )
                runs.append((posterior, time.perf_counter() - started))
            results[name] = _collect(runs, reference)
    exact = _exact(funnel, config, reference)
    table = _table(results, exact)
    print(table)
    print("Mean ± sd over runs; mean and sd of x₁ should be 0 and 3. Seconds: the median run.")
    write_atomically(
        out / "demo.json", lambda path: path.write_text(_records(config, results, exact))
    )
    save_figure(_figure(results, exact), out / "demo.png")
    print("Drawing the animation ...", flush=True)
    write_atomically(out / "demo.gif", lambda path: animate(frames, funnel, path))
    print(f"Wrote demo.png, demo.gif and demo.json to {out}.")


def _collect(runs: list, reference: Reference) -> MethodResult:
    posteriors = [posterior for posterior, _ in runs]
    # A run that stopped early has a shorter curve: all curves end with the shortest.
    length = min(len(posterior.metrics["step"]) for posterior in posteriors)
    return MethodResult(
        particles=np.stack([posterior.particles for posterior in posteriors]),
        steps=posteriors[0].metrics["step"][:length],
        mmd_curves=np.stack([posterior.metrics["mmd"][:length] for posterior in posteriors]),
        mmd=np.array([reference.mmd_squared(p.particles) for p in posteriors]),
        energy=np.array([reference.energy_distance(p.particles) for p in posteriors]),
        seconds=np.array([seconds for _, seconds in runs]),
    )


def _exact(funnel: Funnel, config: Demo, reference: Reference) -> MethodResult:
    """Independent exact samples of the same size, as the standard of comparison."""
    draws = [
        funnel.sample(jax.random.key(1000 + i), config.num_particles)
        for i in range(NUM_EXACT_SAMPLES)
    ]
    mmd = np.array([reference.mmd_squared(x) for x in draws])
    return MethodResult(
        particles=np.stack(draws),
        steps=np.zeros(1),
        mmd_curves=mmd[:, None],
        mmd=mmd,
        energy=np.array([reference.energy_distance(x) for x in draws]),
        seconds=np.zeros(NUM_EXACT_SAMPLES),
    )


def _summary(result: MethodResult) -> dict[str, np.ndarray]:
    """The quantities of the table, one value per run."""
    first = result.particles[:, :, 0]
    return {
        "MMD²": result.mmd,
        "energy distance": result.energy,
        "mean of x₁": first.mean(axis=1),
        "sd of x₁": first.std(axis=1),
    }


def _table(results: dict[str, MethodResult], exact: MethodResult) -> str:
    digits = {"MMD²": 4, "energy distance": 3, "mean of x₁": 2, "sd of x₁": 2}
    lines = [["", *digits, "seconds"]]
    for name, result in {**results, EXACT: exact}.items():
        cells = [
            mean_and_deviation(values, digits[column])
            for column, values in _summary(result).items()
        ]
        lines.append([name, *cells, "" if name == EXACT else f"{np.median(result.seconds):.1f}"])
    return align(lines)


def _records(config: Demo, results: dict[str, MethodResult], exact: MethodResult) -> str:
    settings = {**dataclasses.asdict(config), "out": str(config.out)}
    methods = {
        name: {
            "summary": {name: values.tolist() for name, values in _summary(result).items()},
            "seconds": result.seconds.tolist(),
            "steps": result.steps.tolist(),
            "mmd_curves": result.mmd_curves.tolist(),
        }
        for name, result in results.items()
    }
    exact_summary = {name: values.tolist() for name, values in _summary(exact).items()}
    records = {"settings": settings, "methods": methods, EXACT: {"summary": exact_summary}}
    return json.dumps(records, indent=1)


def _figure(results: dict[str, MethodResult], exact: MethodResult) -> "Figure":
    """Scatter plots of each method's first run above, MMD² over the steps below."""
    import matplotlib.pyplot as plt

    from nvgd.experiments.funnel_figures import draw_scatters

    figure = plt.figure(figsize=(11, 7.2), layout="constrained")
    rows = figure.add_gridspec(2, 1, height_ratios=[1.25, 1])
    first_runs = {name: result.particles[0] for name, result in results.items()}
    draw_scatters(figure, rows[0].subgridspec(1, len(results)), first_runs)
    axes = figure.add_subplot(rows[1])
    for name, result in results.items():
        band(axes, result.steps, result.mmd_curves, COLOURS[name], name)
    mark_exact(axes, exact.mmd)
    # The limits of the axis leave out the start, which is far above everything else.
    late = [r.mmd_curves.mean(axis=0)[len(r.steps) // 20 :].max() for r in results.values()]
    last = max(result.steps[-1] for result in results.values())
    axes.set(xlim=(0, last), ylim=(-0.012, 1.05 * max(late)), xlabel="step", ylabel="MMD²")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=len(results) + 1, loc="upper right")
    return figure
