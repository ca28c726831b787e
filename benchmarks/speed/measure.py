"""Times that are robust on a shared machine, and memory as the compiler reports it."""

import dataclasses
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

# Rounds of alternating runs: other work on the machine meets all runs of a round alike.
ROUNDS = 15


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One number with its limit."""

    part: int
    what: str
    value: float
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None

    @property
    def limit(self) -> str:
        """The limit as text."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return "" if self.at_least is None else f"≥ {self.at_least:g}"

    @property
    def verdict(self) -> str:
        """Whether the limit is kept."""
        if not self.limit:
            return ""
        below = self.at_most is None or self.value <= self.at_most
        above = self.at_least is None or self.value >= self.at_least
        return "kept" if below and above else "NOT KEPT"


def fastest(runs: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """Processor seconds of the fastest run of each function, in rounds of alternating runs.

    Those of all threads: other work on the machine disturbs them less than wall time.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            started = time.process_time()
            jax.block_until_ready(run())
            seconds[name].append(time.process_time() - started)
    return {name: min(values) for name, values in seconds.items()}


def memory_of(compiled: jax.stages.Compiled) -> int:
    """Bytes that a compiled program needs for arguments, results and temporaries."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return 0
    return (
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        + analysis.temp_size_in_bytes
    )


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The exponent of the power law fitted to the points."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def seconds_of_processes(
    codes: Mapping[str, str], rounds: int, **settings: str
) -> dict[str, float]:
    """Fewest processor seconds of fresh interpreters that run each of `codes`, in rounds.

    Importing and compiling use about one core: on an idle machine this is also the wall time.
    """
    environment = {**os.environ, **settings}
    seconds: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(rounds):
        for name, code in codes.items():
            started = _seconds_of_children()
            subprocess.run([sys.executable, "-c", code], check=True, env=environment)
            seconds[name].append(_seconds_of_children() - started)
    return {name: min(values) for name, values in seconds.items()}


def _seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
