"""Figures 3 and 4: the two-dimensional funnel."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nvgd._support.errors import InputError, check_count, check_positive
from nvgd._support.files import write_atomically
from nvgd._support.tables import markdown, mean_and_deviation
from nvgd.evaluation.curved_densities import Funnel
from nvgd.experiments.base import Arrays, Experiment, Report, Task, run_label
from nvgd.experiments.figures import end_of_flow, save_figure
from nvgd.experiments.funnel_frames import Frame, take_frame
from nvgd.experiments.funnel_measures import (
    DIGITS,
    MEASURES,
    FunnelMeasures,
    funnel_measures,
    measure_exact_samples,
)
from nvgd.experiments.methods import DEFAULT, EXACT, PAPER, SEQUENTIAL, paper_nvgd
from nvgd.experiments.records import Records, Rows
from nvgd.flow.methods import NVGD, SVGD, ULA
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.running.sampling import sample_or_interrupt


@dataclasses.dataclass(frozen=True, kw_only=True)
class FunnelExperiment(Experiment):
    """Figures 3 and 4: NVGD, SVGD, parallel and sequential ULA on the two-dimensional funnel."""

    num_particles: int = 100
    """Particles of every method."""
    num_steps: int = 5000
    """Steps of the parallel methods; sequential ULA spends as many gradients on one chain."""
    step_size: float = 1e-2
    """ε of the paper's NVGD and of ULA; ULA also runs at ε/5."""
    svgd_factor: float = 5.0
    """Step size of rescaled SVGD as a multiple of ε; the paper tuned it by hand."""
    learning_rate: float = 1e-4
    """Learning rate of Adam on the witness."""
    thin: int = 100
    """Sequential ULA keeps one state out of this many."""
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
        """The library's default, and the methods of the paper with its settings."""
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
        if task.method == SEQUENTIAL:
            return self._run_sequential(task, flow, measures, report)

        # The first run of the paper's method is recorded for its Figure 1.
        frames: list[Frame] | None = [] if task.name == f"{PAPER}/0" else None

        def watch(state: Any) -> None:
            if frames is not None:
                frames.append(take_frame(state))
            values = measures(state.particles)
            report.measure(step=int(state.step), **values)
            report.step(int(state.step), f"energy distance {float(values['energy']):.3f}")

        posterior = sample_or_interrupt(
            Funnel(2).log_density,
            flow,
            dim=2,
            num_particles=self.num_particles,
            num_steps=self.num_steps,
            seed=task.seed,
            callback=watch,
            metrics_every=self.measure_every,
            progress=False,
        )
        report.measure(status=posterior.status, flow_until=end_of_flow(posterior.stages))
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
        """One chain with as many gradients as all particles; its kept states are measured."""
        posterior = sample_or_interrupt(
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
        # The cost of a measurement grows with the square of the states: five points suffice.
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
                    *(
                        mean_and_deviation([row[name] for row in final], DIGITS[name])
                        for name in MEASURES
                    ),
                    mean_and_deviation([x.mean() for x in first], 2),
                    mean_and_deviation([x.std() for x in first], 2),
                ]
            )
        lines.append([f"{EXACT} of {self.num_particles}", *exact_cells(rows), "0", "3"])
        return markdown(lines)

    def draw(self, rows: Rows, arrays: Arrays, directory: Path) -> list[Path]:
        """Curves of all measures, scatter plots over the density, and the animation."""
        from nvgd.experiments import funnel_figures

        methods = list(self.flows())
        curves = funnel_figures.curves(rows, methods, self.num_steps)
        scatter = funnel_figures.scatter({m: arrays[f"{m}/0/particles"] for m in methods})
        shots = zip(*(arrays[f"{PAPER}/0/film-{name}"] for name in Frame._fields), strict=True)
        frames = [Frame(*shot) for shot in shots]
        animation = directory / "figure-1.gif"
        write_atomically(animation, lambda path: funnel_figures.animate(frames, Funnel(2), path))
        return [
            save_figure(curves, directory / "funnel-curves.png"),
            save_figure(scatter, directory / "funnel-scatter.png"),
            animation,
        ]


def last_rows(rows: Rows, method: str) -> Rows:
    """The last measurement of every run of a method."""
    last = {row["task"]: row for row in rows if row["method"] == method and "step" in row}
    return list(last.values())


def exact_cells(rows: Rows) -> list[str]:
    """Cells of a table: mean and standard deviation of the measures over exact samples."""
    exact = [row for row in rows if row["method"] == EXACT and "step" in row]
    return [mean_and_deviation([row[name] for row in exact], DIGITS[name]) for name in MEASURES]
