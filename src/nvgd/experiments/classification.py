"""What the two classification experiments share: one search for step sizes, one way to measure."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd.errors import check_count, check_positive
from nvgd.experiments.base import DEFAULT, Arrays, Experiment, Report, Rows, Task
from nvgd.experiments.figures import COLOURS
from nvgd.experiments.records import Records
from nvgd.flow import FlowState, ParticleFlow
from nvgd.posterior import Posterior
from nvgd.sampling import RunStopped, sample
from nvgd.tables import spread
from nvgd.target import Target

MEASURES = {
    "accuracy": "accuracy",
    "log_likelihood": "log likelihood",
    "calibration_error": "calibration error",
}
TUNING = "tune"


class Split(NamedTuple):
    """Inputs and labels of the rows that predictions are measured on."""

    inputs: np.ndarray
    labels: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationExperiment(Experiment):
    """A posterior over classifiers, sampled in minibatches; step sizes found by one search.

    Every method but the untuned ones tries the same decades of step sizes on the validation rows,
    then the half decades beside the best of them, all for the same number of steps. The best log
    likelihood wins.
    """

    num_particles: int = 100
    """Particles of every method."""
    batch_size: int = 128
    """Data rows a step."""
    num_steps: int
    """Steps of every method."""
    tuning_steps: int
    """Steps of every try of the search."""
    largest_step_size: float
    """The search's first decade; the others are smaller."""
    num_decades: int
    """How many decades the search tries."""
    measure_every: int
    """Steps between measurements."""
    data_dir: Path | None = None
    """Where to find the data; see data/README.md for where it is looked for otherwise."""

    learning_rate: float = 1e-3
    """Of Adam on the witness."""
    max_inner_steps: int
    """Training steps of the witness a particle step, at most."""

    methods: ClassVar[tuple[str, ...]]
    untuned: ClassVar[tuple[str, ...]] = (DEFAULT,)
    """Those of them that have no step size to find."""
    colours: ClassVar[Mapping[str, str]] = COLOURS
    checkpoint_every: ClassVar[timedelta | int] = timedelta(minutes=2)
    """Between checkpoints of a run, which an interruption sets back to the last one."""

    def __post_init__(self):
        super().__post_init__()
        check_count("num_particles", self.num_particles, minimum=2)
        counts = ("batch_size", "num_steps", "tuning_steps", "num_decades", "measure_every")
        for name in (*counts, "max_inner_steps"):
            check_count(name, getattr(self, name))
        for name in ("largest_step_size", "learning_rate"):
            check_positive(name, getattr(self, name))

    def settings(self):
        """The data are the same wherever they lie."""
        settings = super().settings()
        del settings["data_dir"]
        return settings

    def prepare(self) -> None:
        """Find the data, and see that there are rows enough for a batch."""
        self.target(tuning=True)

    @abstractmethod
    def flow(self, method: str, step_size: float | None) -> ParticleFlow:
        """A method with this step size; without one if it is untuned."""

    @abstractmethod
    def target(self, *, tuning: bool) -> Target:
        """The posterior of all training rows, or without the validation rows for tuning."""

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
        """The search for every method, then the runs."""
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
        """Keep the tries of a search, and a run's measurements if it has a checkpoint."""
        has_state = records.checkpoint(task.name).exists()
        records.rewind(task.name, lambda row: "tried" in row or (has_state and "step" in row))

    def run(self, task: Task, report: Report, records: Records) -> Arrays:
        """Search, or one run with the step size that the search has found."""
        if task.name.startswith(TUNING):
            self._search(task, report, records)
            return {}
        is_untuned = task.method in self.untuned
        step_size = None if is_untuned else best_step_size(records.rows, task.method)
        split = self.split(tuning=False)

        def watch(state: FlowState) -> None:
            # What comes after the checkpoint that the run goes on from is measured again.
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
                # A run that broke down is no candidate, however good its last state was.
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
        watch: Callable[[FlowState], None],
        *,
        tuning: bool,
        checkpoint: Path | None = None,
    ) -> Posterior:
        import warnings

        with warnings.catch_warnings():
            # The status is recorded; step sizes that are too large are part of the search.
            warnings.simplefilter("ignore", RunStopped)
            return sample(
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
        """The step size and the measures at `step`, or where a run stopped before, for a table."""
        reached = [r for r in rows if r["method"] == method and r.get("step", step + 1) <= step]
        at_step = list({r["task"]: r for r in reached}.values())
        digits = {"accuracy": 4, "log_likelihood": 4, "calibration_error": 4}
        return [
            "own" if method in self.untuned else f"{best_step_size(rows, method):.1e}",
            *(spread([r[name] for r in at_step], digits[name]) for name in MEASURES),
        ]


def methods_run(experiment: ClassificationExperiment, rows: Rows) -> list[str]:
    """Those of the methods that there is a run of."""
    run = {row["method"] for row in rows if "step" in row}
    return [method for method in experiment.methods if method in run]


def best_step_size(rows: Rows, method: str) -> float:
    """What the search for this method ended with."""
    search = [row for row in rows if row["task"] == f"{TUNING}/{method}"]
    (found,) = (row["step_size"] for row in search if "step_size" in row)
    return found


def measures(
    probabilities: Float[np.ndarray, "rows classes"], labels: np.ndarray
) -> dict[str, float]:
    """Accuracy, mean log likelihood, and expected calibration error in 15 bins of confidence."""
    probabilities = np.asarray(probabilities, np.float64)
    chosen = probabilities[np.arange(len(labels)), labels]
    confidence, predicted = probabilities.max(axis=1), probabilities.argmax(axis=1)
    is_right = predicted == labels
    bins = np.minimum((confidence * 15).astype(int), 14)
    gaps = np.bincount(bins, weights=is_right - confidence, minlength=15)
    return {
        "accuracy": float(is_right.mean()),
        # The smallest 32-bit number: a prediction of exactly zero is a rounding, not a certainty.
        "log_likelihood": float(np.log(np.maximum(chosen, 1e-38)).mean()),
        "calibration_error": float(np.abs(gaps).sum() / len(labels)),
    }
