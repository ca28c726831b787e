"""Figures 3 and 4: the two-dimensional funnel."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from nvgd.densities import Funnel
from nvgd.divergences import HutchinsonDivergence
from nvgd.errors import InputError, check_count, check_positive
from nvgd.experiments.base import DEFAULT, PAPER, Arrays, Experiment, Report, Rows, Task, run_label
from nvgd.experiments.records import Records
from nvgd.files import write_atomically
from nvgd.flow import FlowState, ParticleFlow
from nvgd.methods import NVGD, SVGD, ULA
from nvgd.metrics import Reference, kolmogorov_smirnov
from nvgd.movers import StepSize
from nvgd.sampling import sample
from nvgd.tables import markdown, spread

NUM_REFERENCE_DRAWS = 5000
# Independent exact samples that say what to expect of a perfect method.
NUM_EXACT_SAMPLES = 20
EXACT, SEQUENTIAL = "exact sample", "ULA sequential"
MEASURES = {"mmd": "MMD²", "energy": "energy distance", "ks": "KS distance of x₁"}
DIGITS = {"mmd": 4, "energy": 3, "ks": 3}


class FunnelMeasures(eqx.Module):
    """MMD² with h = 1, energy distance, and KS distance of x₁ from N(0, 3²).

    The last two see the neck, which MMD with h = 1 does not.
    """

    reference: Reference

    def __init__(self, dim: int):
        draws = Funnel(dim).sample(jax.random.key(2**31 + dim), NUM_REFERENCE_DRAWS)
        self.reference = Reference(draws)

    def __call__(self, particles: Float[Array, "n d"]) -> dict[str, Array]:
        """All three."""
        return {
            "mmd": self.reference.mmd_squared(particles),
            "energy": self.reference.energy_distance(particles),
            "ks": kolmogorov_smirnov(particles[:, 0], lambda x: norm.cdf(x, scale=3.0)),
        }


@functools.lru_cache(maxsize=1)
def funnel_measures(dim: int) -> FunnelMeasures:
    """The measures in this dimension; their reference draws serve all tasks."""
    return FunnelMeasures(dim)


def measure_exact_samples(
    dim: int, num_particles: int, measures: FunnelMeasures, measure: Callable[..., None]
) -> None:
    """What independent exact samples of the same size score."""
    for i in range(NUM_EXACT_SAMPLES):
        draws = Funnel(dim).sample(jax.random.key(2**30 + i), num_particles)
        measure(step=i, **measures(draws))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FunnelExperiment(Experiment):
    """Figures 3 and 4: NVGD, SVGD, parallel and sequential ULA on the two-dimensional funnel."""

    num_particles: int = 100
    """Particles of every method."""
    num_steps: int = 5000
    """Steps of the parallel methods; sequential ULA takes as many gradients in one chain."""
    step_size: float = 1e-2
    """ε of the paper's NVGD and of ULA; ULA also runs at ε/5."""
    svgd_factor: float = 5.0
    """Rescaled SVGD steps by this times ε, the paper's hand-tuned choice."""
    learning_rate: float = 1e-4
    """Of Adam on the witness."""
    thin: int = 100
    """Sequential ULA keeps every so many-th state."""
    measure_every: int = 50
    """Steps between measurements."""

    name: ClassVar[str] = "funnel"
    quick_limits: ClassVar[dict[str, int]] = {"num_steps": 100, "measure_every": 20}

    def __post_init__(self):
        super().__post_init__()
        check_count("num_particles", self.num_particles, minimum=2)
        check_count("num_steps", self.num_steps, minimum=5)
        for name in ("thin", "measure_every"):
            check_count(name, getattr(self, name))
        if self.thin * 10 > self.num_steps * self.num_particles:
            raise InputError(
                f"thin must leave sequential ULA at least ten states: at most "
                f"{self.num_steps * self.num_particles // 10} here, got {self.thin}."
            )
        for name in ("step_size", "svgd_factor", "learning_rate"):
            check_positive(name, getattr(self, name))

    def flows(self) -> dict[str, ParticleFlow]:
        """The default, which has no settings, and the methods of the paper with theirs."""
        slow = ULA(self.step_size / 5)
        return {
            DEFAULT: NVGD(),
            PAPER: paper_nvgd(self.step_size, self.learning_rate),
            "SVGD": SVGD(self.svgd_factor * self.step_size, rescale=True),
            "pULA ε": ULA(self.step_size),
            "pULA ε/5": slow,
            SEQUENTIAL: slow,
        }

    def tasks(self) -> list[Task]:
        """Every method and seed, and the exact samples."""
        tasks = [
            Task(f"{method}/{seed}", method, seed, self.num_steps)
            for method in self.flows()
            for seed in range(self.seeds)
        ]
        return [*tasks, Task(EXACT, EXACT, 0, 1)]

    def run(self, task: Task, report: Report, records: Records) -> Arrays:
        """One run of one method, measured as it goes."""
        del records
        measures = funnel_measures(2)
        if task.method == EXACT:
            measure_exact_samples(2, self.num_particles, measures, report.measure)
            return {}
        flow = self.flows()[task.method]
        funnel = Funnel(2)
        if task.method == SEQUENTIAL:
            return self._run_sequential(task, flow, measures, report)

        from nvgd.experiments.funnel_figures import Frame, film

        # The first run of the paper's method is filmed (its Figure 1).
        frames: list[Frame] | None = [] if task.name == f"{PAPER}/0" else None

        def watch(state: FlowState) -> None:
            if frames is not None:
                frames.append(film(state))
            values = measures(state.particles)
            report.measure(step=int(state.step), **values)
            report.step(int(state.step), f"MMD² {float(values['mmd']):.4f}")

        posterior = sample(
            funnel.log_density,
            flow,
            dim=2,
            num_particles=self.num_particles,
            num_steps=self.num_steps,
            seed=task.seed,
            callback=watch,
            metrics_every=self.measure_every,
            progress=False,
        )
        report.measure(status=posterior.status)
        arrays = {"particles": np.asarray(posterior.particles)}
        if frames is not None:
            arrays |= {
                f"film-{name}": np.stack([getattr(frame, name) for frame in frames])
                for name in Frame._fields
            }
        return arrays

    def _run_sequential(
        self, task: Task, flow: ParticleFlow, measures: FunnelMeasures, report: Report
    ) -> Arrays:
        """One chain with the gradients of all particles; measured on what it has kept so far."""
        posterior = sample(
            Funnel(2).log_density,
            flow,
            dim=2,
            num_particles=1,
            num_steps=self.num_steps * self.num_particles,
            seed=task.seed,
            thin=self.thin,
            callback=lambda state: report.step(
                int(state.step) // self.num_particles, f"x₁ {float(state.particles[0, 0]):.2f}"
            ),
            metrics_every=self.measure_every * self.num_particles,
            progress=False,
        )
        kept = posterior.particles
        # Pairs grow with the square of what is kept: a few points show the curve.
        for fifth in range(1, 6):
            step = fifth * self.num_steps // 5
            count = step * self.num_particles // self.thin
            if count <= len(kept):
                report.measure(step=step, **measures(kept[:count]))
        report.measure(status=posterior.status)
        return {"particles": np.asarray(kept)}

    def table(self, rows: Rows, arrays: Arrays) -> str:
        """Final values of all measures, and the mean and standard deviation of x₁."""
        head = ["", *MEASURES.values(), "mean of x₁", "sd of x₁"]
        lines = [head]
        for method in self.flows():
            final = last_rows(rows, method)
            first = [arrays[f"{row['task']}/particles"][:, 0] for row in final]
            lines.append(
                [
                    run_label(rows, method),
                    *(spread([row[name] for row in final], DIGITS[name]) for name in MEASURES),
                    spread([x.mean() for x in first], 2),
                    spread([x.std() for x in first], 2),
                ]
            )
        lines.append([f"{EXACT} of {self.num_particles}", *exact_cells(rows), "0", "3"])
        return markdown(lines)

    def draw(self, rows: Rows, arrays: Arrays, directory: Path) -> list[Path]:
        """Curves of all measures, and scatter plots over the density."""
        from nvgd.experiments import funnel_figures

        names = funnel_figures.Frame._fields
        shots = zip(*(arrays[f"{PAPER}/0/film-{name}"] for name in names), strict=True)
        frames = [funnel_figures.Frame(*shot) for shot in shots]
        write_atomically(
            directory / "figure-1.gif",
            lambda path: funnel_figures.animate(frames, Funnel(2), path),
        )
        figures = {
            "funnel-curves.png": funnel_figures.curves(self, rows),
            "funnel-scatter.png": funnel_figures.scatter(self, arrays),
        }
        for name, figure in figures.items():
            write_atomically(directory / name, lambda path, f=figure: f.savefig(path, dpi=130))
        return [directory / name for name in (*figures, "figure-1.gif")]


def paper_nvgd(step_size: StepSize | None, learning_rate: float, **options: Any) -> ParticleFlow:
    """NVGD as the paper runs it: Gaussian probes, at most 50 inner steps, patience 15."""
    settings = {
        "max_inner_steps": 50,
        "patience": 15,
        "train_fraction": 2 / 3,
        "divergence": HutchinsonDivergence("gaussian"),
    }
    return NVGD.paper(step_size, learning_rate=learning_rate, **{**settings, **options})


def last_rows(rows: Rows, method: str) -> Rows:
    """The last measurement of every run of a method."""
    last = {row["task"]: row for row in rows if row["method"] == method and "step" in row}
    return list(last.values())


def exact_cells(rows: Rows) -> list[str]:
    """Mean and standard deviation of the measures over exact samples."""
    exact = [row for row in rows if row["method"] == EXACT and "step" in row]
    return [spread([row[name] for row in exact], DIGITS[name]) for name in MEASURES]
