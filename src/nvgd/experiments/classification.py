"""The common part of the classification experiments: step size search and measures."""

import dataclasses
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd._support.errors import RunStoppedWarning, check_count, check_positive
from nvgd._support.tables import mean_and_deviation
from nvgd.experiments.base import Arrays, Experiment, Report, Task
from nvgd.experiments.figures import draw_measures
from nvgd.experiments.methods import COLOURS, DEFAULT
from nvgd.experiments.records import Records, Rows
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.flow.stage import StageState
from nvgd.posterior.posterior import Posterior
from nvgd.running.sampling import sample_or_interrupt
from nvgd.targets.target import Target

MEASURES = {
    "accuracy": "accuracy",
    "log_likelihood": "log likelihood",
    "calibration_error": "calibration error",
}
TUNING = "tune"
# Decimal places of the measures in tables.
DIGITS = 4
# Bins of confidence of the calibration error.
NUM_BINS = 15


class Split(NamedTuple):
    """Inputs and labels on which predictions are measured."""

    inputs: np.ndarray
    labels: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationExperiment(Experiment):
    """A posterior over classifiers, sampled with minibatches and tuned step sizes.

    Every tuned method tries the same decades of step sizes, then the two half decades next to the
    best one, each for the same number of steps. The step size with the largest log likelihood on
    the validation rows is chosen.
    """

    num_particles: int = 100
    """Particles of every method."""
    batch_size: int = 128
    """Data rows per step."""
    num_steps: int
    """Steps of every method."""
    tuning_steps: int
    """Steps for every step size that the search tries."""
    largest_step_size: float
    """The largest step size of the search; the others follow by factors of ten."""
    num_decades: int
    """Number of decades that the search tries."""
    measure_every: int
    """Steps between measurements."""
    data_dir: Path | None = None
    """Directory with the data; data/README.md lists the places that are searched if omitted."""

    learning_rate: float = 1e-3
    """Learning rate of Adam on the witness."""
    max_inner_steps: int
    """Largest number of training steps of the witness per step."""

    methods: ClassVar[tuple[str, ...]]
    untuned: ClassVar[tuple[str, ...]] = (DEFAULT,)
    """Methods without a step size to search for."""
    colours: ClassVar[Mapping[str, str]] = COLOURS
    checkpoint_every: ClassVar[timedelta | int] = timedelta(minutes=2)
    """Interval between the checkpoints of a run."""

    def __post_init__(self):
        super().__post_init__()
        check_count("num_particles", self.num_particles, minimum=2)
        counts = ("batch_size", "num_steps", "tuning_steps", "num_decades", "measure_every")
        for name in (*counts, "max_inner_steps"):
            check_count(name, getattr(self, name))
        for name in ("largest_step_size", "learning_rate"):
            check_positive(name, getattr(self, name))

    def settings(self):
        """All but `data_dir`: the data are the same in every directory."""
        settings = super().settings()
        del settings["data_dir"]
        return settings

    def prepare(self) -> None:
        """Check that the data exist and have enough rows for a batch."""
        self.target(tuning=True)

    @abstractmethod
    def flow(self, method: str, step_size: float | None) -> ParticleFlow:
        """A method with this step size, None if it is untuned."""

    @abstractmethod
    def target(self, *, tuning: bool) -> Target:
        """The posterior given all training rows, for tuning without the validation rows."""

    @abstractmethod
    def split(self, *, tuning: bool) -> Split:
        """The test rows, or the validation rows for tuning."""

    @abstractmethod
    def initial(self, key: PRNGKeyArray) -> Float[Array, "n d"]:
        """Starting particles."""

    @abstractmethod
    def probabilities(
        self, particles: Float[Array, "n d"], inputs: np.ndarray
    ) -> Float[np.ndarray, "rows classes"]:
        """Class probabilities, averaged over the particles."""

    def tasks(self) -> list[Task]:
        """The search for every tuned method, then the runs."""
        tries = self.num_decades + 2
        return [
            *(
                Task(f"{TUNING}/{m}", m, 0, tries * self.tuning_steps)
                for m in self.methods
                if m not in self.untuned
            ),
            *(
                Task(f"{m}/{s}", m, s, self.num_steps)
                for m in self.methods
                for s in range(self.seeds)
            ),
        ]

    def rewind(self, task: Task, records: Records) -> None:
        """Keep the results of a search, and the measurements of a run that has a checkpoint."""
        has_state = records.checkpoint(task.name).exists()
        records.rewind(task.name, lambda row: "tried" in row or (has_state and "step" in row))

    def run(self, task: Task, report: Report, records: Records) -> Arrays:
        """A search, or one run with the step size that the search found."""
        if task.name.startswith(TUNING):
            self._search(task, report, records)
            return {}
        is_untuned = task.method in self.untuned
        step_size = None if is_untuned else best_step_size(records.rows, task.method)
        split = self.split(tuning=False)

        def watch(state: StageState) -> None:
            # A resumed run measures everything after its checkpoint again.
            records.rewind(task.name, lambda row: row["step"] < int(state.step))
            measures = self.measure(state.particles, split)
            report.measure(step=int(state.step), step_size=step_size, **measures)
            report.step(int(state.step), f"accuracy {measures['accuracy']:.4f}")

        checkpoint = records.checkpoint(task.name)
        posterior = self._sample(
            task, step_size, self.num_steps, watch, tuning=False, checkpoint=checkpoint
        )
        report.measure(status=posterior.status)
        return {"particles": np.asarray(posterior.particles)}

    def measure(self, particles: Float[Array, "n d"], split: Split) -> dict[str, float]:
        """Accuracy, mean log likelihood and calibration error of the averaged prediction."""
        return measures(self.probabilities(particles, split.inputs), split.labels)

    def _search(self, task: Task, report: Report, records: Records) -> None:
        split = self.split(tuning=True)
        results = {row["tried"]: row for row in records.rows if row["task"] == task.name}
        tried: dict[float, float] = {}

        def attempt(step_size: float) -> None:
            if step_size not in results:
                start = len(tried) * self.tuning_steps
                so_far = f", best so far {max(tried.values()):.4f}" if tried else ""
                posterior = self._sample(
                    task,
                    step_size,
                    self.tuning_steps,
                    lambda state: report.step(
                        start + int(state.step), f"step size {step_size:.1e}{so_far}"
                    ),
                    tuning=True,
                )
                values = self.measure(posterior.particles, split)
                # A run that stopped early is not a candidate, however good its last state was.
                is_whole = bool(posterior.completed and np.isfinite(values["log_likelihood"]))
                results[step_size] = {"tried": step_size, "is_whole": is_whole, **values}
                report.measure(**results[step_size])
            result = results[step_size]
            tried[step_size] = result["log_likelihood"] if result["is_whole"] else -np.inf

        for decade in range(self.num_decades):
            attempt(self.largest_step_size * 10.0**-decade)
        best = max(tried, key=lambda size: tried[size])
        for factor in (10**0.5, 10**-0.5):
            attempt(best * factor)
        report.measure(step_size=max(tried, key=lambda size: tried[size]))

    def _sample(
        self,
        task: Task,
        step_size: float | None,
        num_steps: int,
        watch: Callable[[StageState], None],
        *,
        tuning: bool,
        checkpoint: Path | None = None,
    ) -> Posterior:
        with warnings.catch_warnings():
            # The status is recorded; the search includes step sizes that are too large.
            warnings.simplefilter("ignore", RunStoppedWarning)
            return sample_or_interrupt(
                self.target(tuning=tuning),
                self.flow(task.method, step_size),
                initial=self.initial(jax.random.key(task.seed)),
                num_steps=num_steps,
                seed=task.seed,
                callback=watch,
                metrics_every=self.measure_every,
                checkpoint=checkpoint,
                checkpoint_every=self.checkpoint_every,
                progress=False,
            )

    def measure_cells(self, rows: Rows, method: str, step: int) -> list[str]:
        """Cells of a table: step size, and measures at `step` or at the end of a stopped run."""
        reached = [r for r in rows if r["method"] == method and r.get("step", step + 1) <= step]
        at_step = list({r["task"]: r for r in reached}.values())
        return [
            "own" if method in self.untuned else f"{best_step_size(rows, method):.1e}",
            *(mean_and_deviation([r[name] for r in at_step], DIGITS) for name in MEASURES),
        ]

    def methods_run(self, rows: Rows) -> list[str]:
        """The methods with at least one run in the rows."""
        run = {row["method"] for row in rows if "step" in row}
        return [method for method in self.methods if method in run]

    def draw_curves(self, rows: Rows, panels: np.ndarray, names: Sequence[str]) -> None:
        """The measures `names` over steps, one panel per measure."""
        colours = {method: self.colours[method] for method in self.methods_run(rows)}
        measures = {name: MEASURES[name] for name in names}
        draw_measures(panels, rows, measures, colours, self.num_steps)


def best_step_size(rows: Rows, method: str) -> float:
    """The step size that the search for this method found."""
    search = [row for row in rows if row["task"] == f"{TUNING}/{method}"]
    (found,) = (row["step_size"] for row in search if "step_size" in row)
    return found


def measures(
    probabilities: Float[np.ndarray, "rows classes"], labels: np.ndarray
) -> dict[str, float]:
    """Accuracy, mean log likelihood and expected calibration error."""
    probabilities = np.asarray(probabilities, np.float64)
    chosen = probabilities[np.arange(len(labels)), labels]
    confidence, predicted = probabilities.max(axis=1), probabilities.argmax(axis=1)
    is_right = predicted == labels
    bins = np.minimum((confidence * NUM_BINS).astype(int), NUM_BINS - 1)
    gaps = np.bincount(bins, weights=is_right - confidence, minlength=NUM_BINS)
    return {
        "accuracy": float(is_right.mean()),
        # About the smallest 32-bit number: a probability of exactly zero is a rounding error.
        "log_likelihood": float(np.log(np.maximum(chosen, 1e-38)).mean()),
        "calibration_error": float(np.abs(gaps).sum() / len(labels)),
    }
