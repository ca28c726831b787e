"""The directory of a run: settings, measurements, particles; figures are drawn from it alone.

    config.json     experiment, settings, versions, devices, commit
    metrics.jsonl   one measurement a line, flushed as the run goes; a task ends with a "done" line
    particles.npz   final particles (or other arrays) of every finished task

A run is a list of tasks, each a function of the settings alone. After an interruption the finished
ones are kept, what the unfinished ones wrote is dropped, and they are run again from their start:
the numbers are then those of an uninterrupted run.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nvgd.errors import InputError
from nvgd.files import output_directory, write_atomically

CONFIG, METRICS, PARTICLES = "config.json", "metrics.jsonl", "particles.npz"


class Records:
    """The records of one run, open for more."""

    def __init__(self, directory: Path, experiment: str, settings: Mapping[str, Any], resume: bool):
        self.directory = directory
        self.rows: list[dict[str, Any]] = []
        self.particles: dict[str, np.ndarray] = {}
        settings = json.loads(json.dumps(settings, default=str))
        if (directory / CONFIG).exists():
            self._continue(experiment, settings, resume)
        else:
            if resume:
                raise InputError(
                    f"out has no run to resume: {str(directory / CONFIG)!r} is missing."
                )
            output_directory(directory)
            if any(directory.iterdir()):
                raise InputError(
                    f"out must be new or empty, got {str(directory)!r}, which holds other files."
                )
            config = {"experiment": experiment, "settings": settings, **_environment()}
            text = json.dumps(config, indent=1)
            write_atomically(directory / CONFIG, lambda path: path.write_text(text))
        self._stream = (directory / METRICS).open("a")

    def _continue(self, experiment: str, settings: Mapping[str, Any], resume: bool) -> None:
        config, rows, self.particles = read(self.directory)
        where = str(self.directory)
        if config["experiment"] != experiment:
            raise InputError(
                f"out holds the experiment {config['experiment']!r}, not {experiment!r}: {where}."
            )
        if not resume:
            raise InputError(f"out holds a run already: add --resume, or choose another: {where}.")
        if config["settings"] != settings:
            both = {**config["settings"], **settings}
            changed = sorted(k for k in both if settings.get(k) != config["settings"].get(k))
            raise InputError(
                f"out holds a run with other settings ({', '.join(changed)}): repeat them to "
                f"resume, or choose another directory: {where}."
            )
        output_directory(self.directory)
        finished = _finished(rows)
        self.rows = [row for row in rows if row["task"] in finished]
        text = "".join(json.dumps(row) + "\n" for row in self.rows)
        write_atomically(self.directory / METRICS, lambda path: path.write_text(text))

    def is_finished(self, task: str) -> bool:
        """Whether the task ended in this run or the one it resumes."""
        return task in _finished(self.rows)

    def add(self, task: str, **values: Any) -> None:
        """Append one measurement."""
        row = {"task": task, **{name: _plain(value) for name, value in values.items()}}
        self.rows.append(row)
        self._stream.write(json.dumps(row) + "\n")
        self._stream.flush()

    def finish(self, task: str, arrays: Mapping[str, np.ndarray], **values: Any) -> None:
        """Store a task's arrays and mark it as done, in this order."""
        self.particles.update({f"{task}/{name}": np.asarray(a) for name, a in arrays.items()})
        write_atomically(
            self.directory / PARTICLES,
            lambda path: np.savez_compressed(path, allow_pickle=False, **self.particles),
        )
        self.add(task, done=True, **values)
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        """No more measurements."""
        self._stream.close()


def read(directory: Path) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, np.ndarray]]:
    """Settings, measurements and particles of a run; a half-written last line is left out."""
    try:
        config = json.loads((directory / CONFIG).read_text())
        if not {"experiment", "settings"} <= set(config):
            raise ValueError("no experiment in it")
        rows = []
        if (directory / METRICS).exists():
            for line in (directory / METRICS).read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    rows.append(json.loads(line))
        if not all(isinstance(row, dict) and "task" in row for row in rows):
            raise ValueError(f"a line of {METRICS} has no task")
        particles: dict[str, np.ndarray] = {}
        if (directory / PARTICLES).exists():
            with (
                (directory / PARTICLES).open("rb") as file,
                np.load(file, allow_pickle=False) as stored,
            ):
                particles = dict(stored)
    except FileNotFoundError as error:
        raise InputError(
            f"{str(directory)!r} is not a results directory: it has no {CONFIG}."
        ) from error
    except Exception as error:  # what a damaged archive raises depends on where it is damaged
        raise InputError(f"the records in {str(directory)!r} cannot be read: {error}.") from error
    return config, rows, particles


def _finished(rows: list[dict[str, Any]]) -> set[str]:
    return {row["task"] for row in rows if row.get("done")}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return np.asarray(value).tolist()
    return value


def _environment() -> dict[str, Any]:
    from importlib.metadata import version

    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "versions": {name: version(name) for name in ("nvgd", "jax", "equinox", "optax", "numpy")},
        "devices": [str(device) for device in jax.devices()],
        "commit": commit.stdout.strip() or None,
    }
