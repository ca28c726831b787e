"""Figure 5: funnels in 2 to 40 dimensions."""

import dataclasses
from pathlib import Path
from typing import ClassVar

import numpy as np

from nvgd._support.errors import check_count, check_positive
from nvgd._support.tables import markdown, mean_and_deviation
from nvgd.evaluation.curved_densities import Funnel
from nvgd.experiments.base import Arrays, Experiment, Report, Task, run_label
from nvgd.experiments.figures import band, save_figure
from nvgd.experiments.funnel_measures import (
    DIGITS,
    IN_FIGURES,
    MEASURES,
    funnel_measures,
    measure_exact_samples,
)
from nvgd.experiments.methods import COLOURS, DEFAULT, EXACT, PAPER, paper_nvgd
from nvgd.experiments.records import Records, Rows
from nvgd.flow.methods import NVGD, SVGD, ULA
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.flow.stage import StageState
from nvgd.running.sampling import sample_or_interrupt

# Dimensions in the table; the figure shows all of them.
IN_TABLE = (2, 5, 10, 20, 30, 40)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep(Experiment):
    """Figure 5: NVGD, the paper's NVGD, SVGD and ULA on funnels in up to 40 dimensions."""

    max_dim: int = 40
    """The largest dimension; the smallest is 2."""
    num_particles: int = 200
    """Particles of every method."""
    num_steps: int = 500
    """Steps of every method."""
    step_size: float = 1e-2
    """ε of all methods except the default; SVGD is rescaled."""
    learning_rate: float = 1e-4
    """Learning rate of Adam on the witness."""

    name: ClassVar[str] = "sweep"
    quick_limits: ClassVar[dict[str, int]] = {"max_dim": 3, "num_steps": 50}

    def __post_init__(self):
        super().__post_init__()
        for name in ("max_dim", "num_particles"):
            check_count(name, getattr(self, name), minimum=2)
        check_count("num_steps", self.num_steps)
        check_positive("step_size", self.step_size)
        check_positive("learning_rate", self.learning_rate)

    def flows(self) -> dict[str, ParticleFlow]:
        """The default, and the methods of the paper with one step size."""
        return {
            DEFAULT: NVGD(),
            PAPER: paper_nvgd(self.step_size, self.learning_rate),
            "SVGD": SVGD(self.step_size, rescale=True),
            "pULA ε": ULA(self.step_size),
        }

    def tasks(self) -> list[Task]:
        """Every dimension, method and seed; consecutive seeds share a compiled program."""
        tasks = []
        for dim in range(2, self.max_dim + 1):
            for method in self.flows():
                for seed in range(self.seeds):
                    name = f"{dim}/{method}/{seed}"
                    tasks.append(Task(name, method, seed, self.num_steps))
            tasks.append(Task(f"{dim}/{EXACT}", EXACT, 0, 1))
        return tasks

    def run(self, task: Task, report: Report, records: Records) -> Arrays:
        """One run, measured at its end."""
        del records
        dim = int(task.name.split("/")[0])
        measures = funnel_measures(dim)
        if task.method == EXACT:
            measure_exact_samples(dim, self.num_particles, measures, report.measure)
            return {}

        def watch(state: StageState) -> None:
            deviation = float(state.particles[:, 0].std())
            report.step(int(state.step), f"d = {dim}, sd of x₁ {deviation:.2f}")

        posterior = sample_or_interrupt(
            Funnel(dim).log_density,
            self.flows()[task.method],
            dim=dim,
            num_particles=self.num_particles,
            num_steps=self.num_steps,
            seed=task.seed,
            callback=watch,
            progress=False,
        )
        first = posterior.particles[:, 0]
        report.measure(
            step=posterior.num_steps,
            status=posterior.status,
            sd_first=first.std(),
            **measures(posterior.particles),
        )
        return {}

    def _values(self, rows: Rows, dim: int, method: str, name: str) -> list[float]:
        prefix = f"{dim}/"
        return [
            row[name]
            for row in rows
            if row["method"] == method and row["task"].startswith(prefix) and name in row
        ]

    def table(self, rows: Rows, arrays: Arrays) -> str:
        """All measures in some of the dimensions."""
        del arrays
        lines = [["d", "", *MEASURES.values(), "sd of x₁"]]
        for dim in (d for d in IN_TABLE if d <= self.max_dim):
            in_dim = [row for row in rows if row["task"].startswith(f"{dim}/")]
            for method in (*self.flows(), EXACT):
                cells = [
                    mean_and_deviation(self._values(rows, dim, method, name), DIGITS[name])
                    for name in MEASURES
                ]
                deviations = self._values(rows, dim, method, "sd_first")
                deviation = mean_and_deviation(deviations, 2) if deviations else "3"
                lines.append([str(dim), run_label(in_dim, method), *cells, deviation])
        return markdown(lines)

    def draw(self, rows: Rows, arrays: Arrays, directory: Path) -> list[Path]:
        """The distances over the dimension."""
        del arrays
        import matplotlib.pyplot as plt

        dims = list(range(2, self.max_dim + 1))
        figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
        for axes, (name, label) in zip(panels, IN_FIGURES.items(), strict=True):
            for method in (*self.flows(), EXACT):
                values = np.array([self._values(rows, dim, method, name) for dim in dims]).T
                band(axes, np.array(dims), values, COLOURS[method], method)
            axes.set(xlabel="dimension of the funnel", ylabel=f"{label} (lower is better)")
            axes.set_xlim(2, max(self.max_dim, 3))
            # Values span orders of magnitude, and MMD² can be negative.
            if name == "mmd":
                axes.set_yscale("symlog", linthresh=0.01)
                axes.set_ylim(-0.006, None)
            else:
                axes.set_yscale("log")
            axes.spines[["top", "right"]].set_visible(False)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
        return [save_figure(figure, directory / "sweep.png")]
