"""Processor seconds of tracing, lowering and compilation, by the program that they are for."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from benchmarks.startup import methods

FLOWS = {"NVGD()": methods.neural, "NVGD.paper()": methods.paper}
# Its log density costs nothing to compile: what is measured are the library's own programs.
TARGET = "standard_normal_10"
# Seconds from which a program has a row of its own.
LARGE = 0.5
PHASES = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compilation",
}


class Program(NamedTuple):
    """A compiled program and the processor seconds of each phase."""

    name: str
    seconds: dict[str, float]


class Listener:
    """Collects what JAX reports about compilation.

    Work inside other work, such as the tracing of a jitted function that another one calls, counts
    for the outer one. JAX announces the start of a phase as a scalar, and its end as a duration.
    """

    def __init__(self):
        self.programs: list[Program] = []
        self._depth, self._started = 0, 0.0
        jax.monitoring.register_scalar_listener(self._begin)
        jax.monitoring.register_event_duration_secs_listener(self._end)

    def _begin(self, event: str, value: float, **details: Any) -> None:
        del value, details
        if event in PHASES:
            if self._depth == 0:
                self._started = time.process_time()
            self._depth += 1

    def _end(self, event: str, duration_secs: float, **details: Any) -> None:
        del duration_secs
        if event not in PHASES:
            return
        self._depth -= 1
        if self._depth > 0:
            return
        name = str(details.get("fun_name", "")).removeprefix("jit(").removesuffix(")")
        earlier = [program for program in self.programs if program.name == name]
        # A program begins with its tracing.
        if not earlier or PHASES[event] == "tracing":
            earlier.append(Program(name, dict.fromkeys(PHASES.values(), 0.0)))
            self.programs.append(earlier[-1])
        earlier[-1].seconds[PHASES[event]] += time.process_time() - self._started


def named(programs: Sequence[Program]) -> dict[str, dict[str, float]]:
    """Seconds by name; large programs of the same name are numbered, small ones are summed."""
    found: dict[str, dict[str, float]] = {}
    for program in programs:
        name = program.name
        if sum(program.seconds.values()) > LARGE:
            number = sum(key.startswith(f"{name}, ") for key in found) + 1
            name = f"{name}, {number}"
        phases = found.setdefault(name, dict.fromkeys(PHASES.values(), 0.0))
        for phase, seconds in program.seconds.items():
            phases[phase] += seconds
    return found


def measured(flow: str, problem: methods.Problem) -> dict[str, Any]:
    """The phases of every program, and the seconds of the first call beyond the second."""
    listener = Listener()
    run = FLOWS[flow](problem)
    started = time.process_time()
    run(0)
    first = time.process_time()
    # The programs of the first call; a second one should add none.
    programs = named(listener.programs)
    run(1)
    second = time.process_time()
    rows = [
        {"program": name, **{phase: round(seconds, 4) for phase, seconds in phases.items()}}
        for name, phases in programs.items()
    ]
    rows.sort(key=lambda row: -sum(row[phase] for phase in PHASES.values()))
    return {
        "flow": flow,
        "target": problem.name,
        "first_beyond_second_cpu_seconds": round(first - started - (second - first), 3),
        "programs": rows,
    }
