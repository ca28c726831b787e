"""The contract of an experiment: settings, tasks, and figures drawn from its records alone."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from nvgd._support.errors import InputError, check_count
from nvgd._support.files import locked, output_directory, write_atomically
from nvgd.experiments.records import Records, Rows, check_directory, finished, read

Arrays = dict[str, np.ndarray]


class Task(NamedTuple):
    """A part of an experiment, determined by the settings alone."""

    name: str
    method: str
    seed: int
    num_steps: int


class Report(NamedTuple):
    """How a task reports its progress."""

    measure: Callable[..., None]
    """Appends a measurement, given as keywords, to the records."""
    step: Callable[[int, str], None]
    """Moves the progress bar to a step of the task, with a text beside it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """The settings that all experiments share; fields are options of the command line."""

    out: Path | None = None
    """Directory for records and figures; results/<experiment> if omitted."""
    seeds: int = 10
    """Independent runs of every method."""
    quick: bool = False
    """Run a smaller version that takes a minute or less; settings that you give are kept."""
    resume: bool = False
    """Continue an interrupted run in `out`, with the same settings."""

    name: ClassVar[str]
    # The values that --quick gives to settings left at their defaults.
    quick_limits: ClassVar[Mapping[str, int]] = {}

    def __post_init__(self):
        check_count("seeds", self.seeds)

    @property
    def directory(self) -> Path:
        """The directory of the records."""
        return Path("results") / self.name if self.out is None else self.out

    def scaled(self) -> "Experiment":
        """The settings of the run: with `quick`, defaults are replaced by `quick_limits`."""
        if not self.quick:
            return self
        limits = {"seeds": 2, **self.quick_limits}
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        cut = {k: v for k, v in limits.items() if getattr(self, k) == defaults[k]}
        return dataclasses.replace(self, **cut)

    def settings(self) -> dict[str, Any]:
        """The settings that the results depend on, for the records."""
        leave_out = {"out", "resume"}
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in leave_out}

    def prepare(self) -> None:
        """Check what the tasks need, such as data, before anything is written."""

    @abstractmethod
    def tasks(self) -> list[Task]:
        """All tasks, in order."""

    def rewind(self, task: Task, records: Records) -> None:
        """Drop the measurements of an interrupted task, except those that `run` continues from."""
        records.rewind(task.name, lambda row: False)

    @abstractmethod
    def run(self, task: Task, report: Report, records: Records) -> Arrays:
        """Run one task: report measurements on the way, return the arrays to keep."""

    def can_show(self, rows: Rows) -> bool:
        """Whether the rows of an unfinished run are enough for a table and figures."""
        del rows
        return False

    @abstractmethod
    def table(self, rows: Rows, arrays: Arrays) -> str:
        """The results as a table in Markdown."""

    @abstractmethod
    def draw(self, rows: Rows, arrays: Arrays, directory: Path) -> list[Path]:
        """Draw the figures into `directory`, from the records alone."""


def run_label(rows: Rows, method: str) -> str:
    """The method's name, with the number of completed runs if some stopped early."""
    ends = [row["status"] for row in rows if row["method"] == method and "status" in row]
    completed = sum(end == "completed" for end in ends)
    return method if completed == len(ends) else f"{method} ({completed} of {len(ends)} completed)"


def check(experiment: Experiment) -> None:
    """Refuse an experiment that could not begin: a bad directory, or missing data."""
    experiment = experiment.scaled()
    directory, name = experiment.directory, experiment.name
    check_directory(directory, name, experiment.settings(), experiment.resume)
    experiment.prepare()


def reproduce(experiment: Experiment) -> None:
    """Run the unfinished tasks of an experiment, then print its table and draw its figures."""
    experiment = experiment.scaled()
    experiment.prepare()
    with locked(experiment.directory):
        _run_tasks(experiment)
        present(experiment)


def _run_tasks(experiment: Experiment) -> None:
    from tqdm import tqdm

    tasks = experiment.tasks()
    records = Records(
        experiment.directory, experiment.name, experiment.settings(), experiment.resume
    )
    total = sum(task.num_steps for task in tasks)
    with closing(records), tqdm(total=total, unit="step", disable=None) as bar:
        for task in tasks:
            start = bar.n
            if not records.is_finished(task.name):
                bar.set_description(f"{experiment.name}: {task.method}, seed {task.seed}")

                def measure(task: Task = task, **values: Any) -> None:
                    records.add(task.name, method=task.method, seed=task.seed, **values)

                def step(done: int, measure: str = "", start: int = start) -> None:
                    bar.set_postfix_str(measure, refresh=False)
                    bar.update(start + done - bar.n)

                experiment.rewind(task, records)
                arrays = experiment.run(task, Report(measure, step), records)
                records.finish(task.name, arrays, method=task.method, seed=task.seed)
            bar.update(start + task.num_steps - bar.n)


def present(experiment: Experiment) -> None:
    """Print the table and draw the figures of the records in the experiment's directory."""
    _, rows, arrays = read(experiment.directory)
    tasks = {task.name for task in experiment.tasks()}
    done = tasks & finished(rows, arrays)
    if done < tasks:
        rows = [row for row in rows if row["task"] in done]
        so_far = f"{str(experiment.directory)!r} holds {len(done)} of {len(tasks)} tasks"
        if not experiment.can_show(rows):
            raise InputError(
                f"{so_far}: finish the run with `nvgd reproduce {experiment.name} --resume` and "
                "its settings first."
            )
        print(f"{so_far}, which are shown.")
    directory = output_directory(experiment.directory)
    table = experiment.table(rows, arrays)
    print(table)
    path = directory / "table.md"
    write_atomically(path, lambda temporary: temporary.write_text(table + "\n"))
    paths = [path, *experiment.draw(rows, arrays, directory)]
    print("Wrote " + ", ".join(str(path) for path in paths) + ".")
