"""What every experiment is: settings, tasks, and pictures drawn from records alone."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from nvgd.errors import InputError, check_count
from nvgd.experiments.records import Records, Rows, check_directory, finished, read
from nvgd.files import output_directory, write_atomically

Arrays = dict[str, np.ndarray]
# The names of the library's default and of the paper's method in tables and figures.
DEFAULT, PAPER = "NVGD", "NVGD paper"


class Task(NamedTuple):
    """A part of an experiment that depends on its settings alone."""

    name: str
    method: str
    seed: int
    num_steps: int


class Report(NamedTuple):
    """How a task tells the world: `measure` appends to the records, `step` moves the bar."""

    measure: Callable[..., None]
    step: Callable[[int, str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """Settings that all experiments share; the fields are the command line's options."""

    out: Path | None = None
    """Directory for records and figures; results/<experiment> if omitted."""
    seeds: int = 10
    """Independent runs of every method."""
    quick: bool = False
    """The same code on a scale that takes a minute or less; settings that are given stay."""
    resume: bool = False
    """Continue an interrupted run in `out`; settings must be the same."""

    name: ClassVar[str]
    # What --quick makes of a setting that is not given.
    quick_limits: ClassVar[Mapping[str, int]] = {}

    def __post_init__(self):
        check_count("seeds", self.seeds)

    @property
    def directory(self) -> Path:
        """Where the records go."""
        return Path("results") / self.name if self.out is None else self.out

    def scaled(self) -> "Experiment":
        """The settings that are run: if `quick`, cut down where they are the defaults."""
        if not self.quick:
            return self
        limits = {"seeds": 2, **self.quick_limits}
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        cut = {k: v for k, v in limits.items() if getattr(self, k) == defaults[k]}
        return dataclasses.replace(self, **cut)

    def settings(self) -> dict[str, Any]:
        """What the numbers depend on, for the records."""
        leave_out = {"out", "resume"}
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in leave_out}

    def prepare(self) -> None:
        """Check what the tasks will need (data, say) before anything is written."""

    @abstractmethod
    def tasks(self) -> list[Task]:
        """All tasks, in order."""

    def rewind(self, task: Task, records: Records) -> None:
        """Drop what an interrupted run measured of a task, but for what `run` can go on from."""
        records.rewind(task.name, lambda row: False)

    @abstractmethod
    def run(self, task: Task, report: Report, records: Records) -> Arrays:
        """Do one task: measure as it goes, return the arrays to keep."""

    def can_show(self, rows: Rows) -> bool:
        """Whether these rows of an unfinished run are enough for a table and figures."""
        del rows
        return False

    @abstractmethod
    def table(self, rows: Rows, arrays: Arrays) -> str:
        """The results in words and numbers, in Markdown."""

    @abstractmethod
    def draw(self, rows: Rows, arrays: Arrays, directory: Path) -> list[Path]:
        """Figures into `directory`, from records alone."""


def run_label(rows: Rows, method: str) -> str:
    """The method's name, with how many of its runs came to their end if not all did."""
    ends = [row["status"] for row in rows if row["method"] == method and "status" in row]
    completed = sum(end == "completed" for end in ends)
    return method if completed == len(ends) else f"{method} ({completed} of {len(ends)} completed)"


def check(experiment: Experiment) -> None:
    """Refuse what would end the run before its first step."""
    experiment = experiment.scaled()
    directory, name = experiment.directory, experiment.name
    check_directory(directory, name, experiment.settings(), experiment.resume)
    experiment.prepare()


def reproduce(experiment: Experiment) -> None:
    """Run what is left of an experiment, then print its table and draw its figures."""
    from tqdm import tqdm

    experiment = experiment.scaled()
    experiment.prepare()
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
    present(experiment)


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
