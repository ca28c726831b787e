"""Fresh processes with caches of their own."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.startup.methods import METHODS

MOST_SECONDS = 1800


class WorkerFailed(Exception):
    """A process did not reach its posterior; the message is its last line."""


def run(task: dict[str, Any], cache: Path) -> dict[str, Any]:
    """Run a task in a fresh process whose caches are in the directory `cache`."""
    keeps_programs = task["kind"] != "times" or task["method"] == "nvgd"
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory) / "result.json"
        task = {**task, "started": time.time()}
        command = [sys.executable, "-m", "benchmarks.startup.worker", json.dumps(task), str(result)]
        try:
            finished = subprocess.run(
                command,
                env=environment(cache, keeps_programs=keeps_programs),
                capture_output=True,
                text=True,
                timeout=MOST_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise WorkerFailed(f"no posterior after {MOST_SECONDS} s") from error
        if finished.returncode != 0:
            lines = finished.stderr.strip().splitlines()
            raise WorkerFailed(lines[-1] if lines else f"exit code {finished.returncode}")
        return json.loads(result.read_text())


def environment(cache: Path, *, keeps_programs: bool) -> dict[str, str]:
    """This environment with other caches of compiled programs: nvgd's and PyTensor's in `cache`.

    The rivals run as their users run them by default, without JAX's persistent cache. Byte code is
    kept, as for an installed package.
    """
    settings = {name: value for name, value in os.environ.items() if not _is_a_cache(name)}
    settings["PYTENSOR_FLAGS"] = f"base_compiledir={cache / 'pytensor'}"
    settings["MPLBACKEND"] = "agg"
    if keeps_programs:
        settings["XDG_CACHE_HOME"] = str(cache)
    else:
        settings["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    return settings


def _is_a_cache(name: str) -> bool:
    return name == "PYTHONDONTWRITEBYTECODE" or name.startswith(
        ("JAX_COMPILATION_CACHE", "JAX_ENABLE_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE")
    )


def installed(method: str) -> bool:
    """Whether the packages of a method are installed."""
    packages = [package.split(".")[0] for package in METHODS[method].packages]
    return all(importlib.util.find_spec(package) is not None for package in packages)


def import_once(methods: Sequence[str]) -> None:
    """Import the packages of all methods, so that later processes find byte code and warm disks."""
    with tempfile.TemporaryDirectory() as directory:
        settings = environment(Path(directory), keeps_programs=False)
        for packages in dict.fromkeys(METHODS[method].packages for method in methods):
            code = f"import {', '.join(packages)}"
            command = [sys.executable, "-c", code]
            subprocess.run(command, env=settings, check=True, capture_output=True)
