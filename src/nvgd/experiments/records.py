"""The records of a run: a directory with settings, measurements and particles.

    config.json     experiment, settings, versions, devices, commit; those it was resumed with
    metrics.jsonl   one measurement per line, flushed at once; a task ends with a "done" line
    particles.npz   final particles, or other arrays, of every finished task
    checkpoints/    the state of a long task while it runs

Tables and figures are drawn from this directory alone. A run is a list of tasks, each a function of
the settings alone. A resumed run keeps finished tasks. It drops the measurements of an unfinished
task that come after the state it continues from and makes them again, so that the results equal
those of an uninterrupted run.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nvgd._support.errors import InputError
from nvgd._support.files import (
    LOCK,
    check_output,
    output_directory,
    write_atomically,
)

CONFIG, METRICS, PARTICLES = "config.json", "metrics.jsonl", "particles.npz"
CHECKPOINTS = "checkpoints"
# Key of the versions, devices and commits that a run was resumed with.
RESUMED = "resumed_with"

Rows = list[dict[str, Any]]


class Records:
    """The records of one run, open for writing."""

    def __init__(self, directory: Path, experiment: str, settings: Mapping[str, Any], resume: bool):
        self.directory = directory
        check_directory(directory, experiment, settings, resume)
        output_directory(directory)
        environment = _environment()
        self.rows: Rows = []
        self.particles: dict[str, np.ndarray] = {}
        config: dict[str, Any] = {
            "experiment": experiment,
            "settings": _as_stored(settings),
            **environment,
        }
        if resume:
            config, self.rows, self.particles = read(directory)
            others = config.get(RESUMED, [])
            if environment not in ({name: config.get(name) for name in environment}, *others):
                config[RESUMED] = [*others, environment]
        text = json.dumps(config, indent=1)
        write_atomically(directory / CONFIG, lambda path: path.write_text(text))
        self._write_rows()

    def is_finished(self, task: str) -> bool:
        """Whether the task has ended, in this run or in the one it resumes."""
        return task in finished(self.rows, self.particles)

    def add(self, task: str, **values: Any) -> None:
        """Append one measurement."""
        row = {"task": task, **{name: _plain(value) for name, value in values.items()}}
        self.rows.append(row)
        self._stream.write(json.dumps(row) + "\n")
        self._stream.flush()

    def rewind(self, task: str, is_kept: Callable[[Mapping[str, Any]], bool]) -> None:
        """Keep only some of the measurements of an interrupted task."""
        kept = [row for row in self.rows if row["task"] != task or is_kept(row)]
        if len(kept) < len(self.rows):
            self.rows = kept
            self._stream.close()
            self._write_rows()

    def _write_rows(self) -> None:
        lines = "".join(json.dumps(row) + "\n" for row in self.rows)
        path = self.directory / METRICS
        write_atomically(path, lambda temporary: temporary.write_text(lines))
        self._stream = path.open("a")

    def checkpoint(self, task: str) -> Path:
        """Directory for the state of a task until it is finished."""
        return self.directory / CHECKPOINTS / task.replace("/", "-")

    def finish(self, task: str, arrays: Mapping[str, np.ndarray], **values: Any) -> None:
        """Store the arrays of a task, then mark it as done."""
        self.particles.update({f"{task}/{name}": np.asarray(a) for name, a in arrays.items()})
        write_atomically(
            self.directory / PARTICLES,
            lambda path: np.savez_compressed(path, allow_pickle=False, **self.particles),
        )
        self.add(task, done=True, arrays=sorted(arrays), **values)
        os.fsync(self._stream.fileno())
        shutil.rmtree(self.checkpoint(task), ignore_errors=True)
        with suppress(OSError):  # missing, or not empty
            (self.directory / CHECKPOINTS).rmdir()

    def close(self) -> None:
        """Close the file of measurements."""
        self._stream.close()


def check_directory(
    directory: Path, experiment: str, settings: Mapping[str, Any], resume: bool
) -> None:
    """Refuse a directory that cannot take this run."""
    where = str(directory)
    if not (directory / CONFIG).exists():
        if resume:
            raise InputError(f"out has no run to resume: {str(directory / CONFIG)!r} is missing.")
        check_output(directory)
        if directory.exists() and any(path.name != LOCK for path in directory.iterdir()):
            raise InputError(f"out must be new or empty, got {where!r}, which holds other files.")
        return
    config, _, _ = read(directory)
    if config["experiment"] != experiment:
        raise InputError(
            f"out holds the experiment {config['experiment']!r}, not {experiment!r}: {where}."
        )
    if not resume:
        raise InputError(f"out holds a run already: add --resume, or choose another: {where}.")
    stored, wanted = config["settings"], _as_stored(settings)
    if stored != wanted:
        changed = sorted(k for k in {**stored, **wanted} if wanted.get(k) != stored.get(k))
        raise InputError(
            f"out holds a run with other settings ({', '.join(changed)}): repeat them to "
            f"resume, or choose another directory: {where}."
        )
    check_output(directory)


def read(directory: Path) -> tuple[dict[str, Any], Rows, dict[str, np.ndarray]]:
    """Settings, measurements and particles of a run, without a half-written last line."""
    try:
        config = json.loads((directory / CONFIG).read_text())
        if not isinstance(config, dict) or not {"experiment", "settings"} <= set(config):
            raise ValueError("no experiment in it")
        if not isinstance(config["settings"], dict):
            raise ValueError("no settings in it")
        rows = []
        if (directory / METRICS).exists():
            for line in (directory / METRICS).read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    rows.append(json.loads(line))
        if not all(isinstance(row, dict) and isinstance(row.get("task"), str) for row in rows):
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


def finished(rows: Rows, particles: Mapping[str, np.ndarray]) -> set[str]:
    """The tasks that are marked as done and whose arrays are stored."""
    return {
        row["task"]
        for row in rows
        if row.get("done")
        and all(f"{row['task']}/{name}" in particles for name in row.get("arrays", []))
    }


def _as_stored(settings: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(settings, default=str))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return np.asarray(value).tolist()
    return value


def _environment() -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "versions": {name: version(name) for name in ("nvgd", "jax", "equinox", "optax", "numpy")},
        "devices": [str(device) for device in jax.devices()],
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of the clone that holds this file; None for an installed package."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:  # git is not installed
        return None
    return described.stdout.strip() or None
