"""Figure 5: funnels of 2 to 40 dimensions."""

import dataclasses
from pathlib import Path
from typing import ClassVar

import numpy as np

from nvgd.densities import Funnel
from nvgd.errors import check_count, check_positive
from nvgd.experiments.base import DEFAULT, PAPER, Arrays, Experiment, Report, Rows, Task, run_label
from nvgd.experiments.funnel import (
    DIGITS,
    EXACT,
    MEASURES,
    funnel_measures,
    measure_exact_samples,
    paper_nvgd,
)
from nvgd.experiments.records import Records
from nvgd.files import write_atomically
from nvgd.flow import FlowState, ParticleFlow
from nvgd.methods import NVGD, SVGD, ULA
from nvgd.sampling import sample
from nvgd.tables import markdown, spread

# Dimensions of the table; the figure shows all.
SHOWN = (2, 5, 10, 20, 30, 40)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep(Experiment):
    """Figure 5: NVGD in both forms, SVGD and ULA on funnels of every dimension up to 40."""

    max_dim: int = 40
    """Dimensions run from 2 to this."""
    num_particles: int = 200
    """Particles of every method."""
    num_steps: int = 500
    """Steps of every method."""
    step_size: float = 1e-2
    """ε of every method but the default; SVGD's field is rescaled."""
    learning_rate: float = 1e-4
    """Of Adam on the witness."""

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
        """Every dimension, method and seed; seeds last, so that they share a compiled program."""
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

        def watch(state: FlowState) -> None:
            deviation = float(state.particles[:, 0].std())
            report.step(int(state.step), f"d = {dim}, sd of x₁ {deviation:.2f}")

        posterior = sample(
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
        """All measures in a few of the dimensions."""
        del arrays
        lines = [["d", "", *MEASURES.values(), "sd of x₁"]]
        for dim in (d for d in SHOWN if d <= self.max_dim):
            in_dim = [row for row in rows if row["task"].startswith(f"{dim}/")]
            for method in (*self.flows(), EXACT):
                cells = [
                    spread(self._values(rows, dim, method, name), DIGITS[name]) for name in MEASURES
                ]
                deviations = self._values(rows, dim, method, "sd_first")
                deviation = spread(deviations, 2) if deviations else "3"
                lines.append([str(dim), run_label(in_dim, method), *cells, deviation])
        return markdown(lines)

    def draw(self, rows: Rows, arrays: Arrays, directory: Path) -> list[Path]:
        """Every measure over the dimension."""
        del arrays
        import matplotlib.pyplot as plt

        from nvgd.experiments.figures import COLOURS, band

        dims = list(range(2, self.max_dim + 1))
        figure, panels = plt.subplots(1, 3, figsize=(13, 3.9), layout="constrained")
        for axes, (name, label) in zip(panels, MEASURES.items(), strict=True):
            for method in (*self.flows(), EXACT):
                values = np.array([self._values(rows, dim, method, name) for dim in dims]).T
                band(axes, np.array(dims), values, COLOURS[method], method)
            axes.set(xlabel="dimension", ylabel=label, xlim=(2, max(self.max_dim, 3)))
            # SVGD and an exact sample lie far apart; MMD² can be negative.
            if name == "mmd":
                axes.set_yscale("symlog", linthresh=0.01)
                axes.set_ylim(-0.006, None)
            else:
                axes.set_yscale("log")
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].legend(frameon=False)
        path = directory / "sweep.png"
        write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=130))
        plt.close(figure)
        return [path]
