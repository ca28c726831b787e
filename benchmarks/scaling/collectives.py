"""The traffic between devices in a step, read from the compiled program."""

import re
from collections import Counter
from typing import NamedTuple

import jax
import jax.numpy as jnp

from nvgd._support.devices import Placement
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.running.chunks import Steps, advance_together
from nvgd.targets.target import Target

KINDS = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4}
BYTES |= {"s64": 8, "u64": 8, "f64": 8}

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
_CALLED = re.compile(
    r"(?:body|condition|calls|to_apply|true_computation|false_computation)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


class Traffic(NamedTuple):
    """Collectives of one step, by kind: number of executions, and bytes of their results."""

    calls: Counter[str]
    bytes: Counter[str]


def step_program(
    flow: ParticleFlow, target: Target, num_particles: int, placement: Placement
) -> str:
    """The text of the compiled program of a chunk of steps; for a target without data."""
    key = jax.random.key(0)
    particles = jax.random.normal(key, (num_particles, target.dim))
    state = flow.init(target, particles, key=key)
    state = placement.split_particles(state, num_particles, target.dim)
    with placement.active():
        flow, target, key = (placement.replicate(tree) for tree in (flow, target, key))
        steps = Steps(flow, target, key, None, placement)
        length = placement.replicate(jnp.array(1))
        lowered = advance_together.lower(steps, state, state, None, length)
    return lowered.compile().compiled.as_text()


def traffic(text: str, inner_steps: int = 1) -> Traffic:
    """Collectives of one pass through the program's loop over steps.

    Loops of known length count as often as they run. Loops with a condition, of which training is
    the only one besides the loop over steps, count `inner_steps` times. Of the branches of a
    conditional, the one with the most bytes counts.
    """
    computations: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if (match := _COMPUTATION.match(line)) is not None:
            name = "ENTRY" if line.startswith("ENTRY") else match[1]
            computations[name] = []
        elif name:
            computations[name].append(line.strip())
    known: dict[tuple[str, int], Traffic] = {}

    def of(name: str, depth: int) -> Traffic:
        if (name, depth) in known:
            return known[name, depth]
        total = Traffic(Counter(), Counter())
        for line in computations.get(name, ()):
            kind = next((k for k in KINDS if re.search(rf" {k}(-start)?\(", line)), None)
            if kind is not None:
                total.calls[kind] += 1
                total.bytes[kind] += _result_bytes(line.split(f" {kind}")[0])
            if (branches := _BRANCHES.search(line)) is not None:
                parts = [of(part.strip(" %"), depth) for part in branches[1].split(",")]
                _add(total, max(parts, key=lambda part: sum(part.bytes.values())), 1)
            for called in _CALLED.findall(line):
                if " while(" not in line:
                    _add(total, of(called, depth), 1)
                    continue
                trips = _TRIPS.search(line)
                times = int(trips[1]) if trips else (1 if depth == 0 else inner_steps)
                _add(total, of(called, depth if trips else depth + 1), times)
        known[name, depth] = total
        return total

    return of("ENTRY", 0)


def _add(total: Traffic, part: Traffic, times: int) -> None:
    for mine, other in zip(total, part, strict=True):
        for kind, number in other.items():
            mine[kind] += times * number


def _result_bytes(text: str) -> int:
    total = 0
    for dtype, shape in _SHAPE.findall(text.split("=", 1)[1]):
        size = 1
        for length in filter(None, shape.split(",")):
            size *= int(length)
        total += size * BYTES[dtype]
    return total
