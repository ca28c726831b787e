"""One measurement in a fresh process. Before its clocks, only the standard library is imported.

python -m benchmarks.startup.worker TASK RESULT, with a task in JSON and the file of its result.
"""

import importlib
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

# Between the seeds of the two calls of a process.
ANOTHER_SEED = 1000

Task = dict[str, Any]


class Clock(NamedTuple):
    """Processor seconds of all threads and finished children since the start, and the time."""

    cpu: float
    wall: float

    @classmethod
    def now(cls) -> "Clock":
        """The clock at this moment."""
        usages = [
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ]
        return cls(sum(usage.ru_utime + usage.ru_stime for usage in usages), time.time())

    def since(self, earlier: "Clock") -> "Clock":
        """The difference."""
        return Clock(self.cpu - earlier.cpu, self.wall - earlier.wall)


def main() -> None:
    """Measure what the task says, and write the result."""
    task = json.loads(sys.argv[1])
    result = MEASURES[task["kind"]](task)
    Path(sys.argv[2]).write_text(json.dumps(result))


def times(task: Task) -> dict[str, Any]:
    """From the start of the process to the first and second posterior.

    Building the log density, which imports this benchmark's own modules, is left out of all times.
    """
    from benchmarks.startup.methods import METHODS

    method = METHODS[task["method"]]
    for package in method.packages:
        importlib.import_module(package)
    imported = Clock.now()
    if not method.is_pymc:
        # Otherwise this would be part of building the log density or of the run, by chance.
        importlib.import_module("jax").devices()
    ready = Clock.now()
    problem = problem_of(task)
    draws, calls, before = [], [], Clock.now()
    run = method.make(problem)
    for number in range(task["num_calls"]):
        draws.append(run(task["seed"] + number * ANOTHER_SEED).tolist())
        now = Clock.now()
        calls.append(now.since(before))
        before = now
    import_time = imported.since(Clock(0.0, task["started"]))
    backend = ready.since(imported)
    calls[0] = Clock(calls[0].cpu + backend.cpu, calls[0].wall + backend.wall)
    result: dict[str, Any] = {"draws": draws, "peak_gigabytes": _peak_gigabytes()}
    for name, spent in zip(("import", "first", "second"), (import_time, *calls), strict=False):
        result[f"{name}_cpu_seconds"] = round(spent.cpu, 3)
        result[f"{name}_wall_seconds"] = round(spent.wall, 3)
    result["cpu_seconds"] = round(import_time.cpu + calls[0].cpu, 3)
    result["wall_seconds"] = round(import_time.wall + calls[0].wall, 3)
    return result


def problem_of(task: Task) -> Any:
    """The posterior of a task, with a log density or with data for PyMC."""
    from benchmarks.startup.methods import Problem

    if "data" in task:
        return Problem(task["posterior"], task["dim"], data=task["data"])
    from benchmarks.startup.posteriors import build

    posterior = build(task["posterior"])
    return Problem(posterior.name, posterior.dim, posterior.log_density)


def _peak_gigabytes() -> float:
    from benchmarks.machine import peak_gigabytes

    return round(peak_gigabytes(), 3)


def steps(task: Task) -> dict[str, Any]:
    """The cost of a step."""
    from benchmarks.startup.steps import measured

    return measured(problem_of(task))


def programs(task: Task) -> dict[str, Any]:
    """The cost of compilation, by program."""
    from benchmarks.startup.programs import measured

    return measured(task["flow"], problem_of(task))


MEASURES: dict[str, Callable[[Task], dict[str, Any]]] = {
    "times": times,
    "steps": steps,
    "programs": programs,
}


if __name__ == "__main__":
    main()
