"""`python -m benchmarks.scaling [parts]`: the tables of docs/results/scaling.md, as text.

Measurements on several devices run on virtual ones, in a process of their own.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable

from nvgd._support.tables import markdown

DEVICES = 8
INNER_STEPS = 10


def collectives() -> str:
    """A table of the traffic of a step, by method and number of particles."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
    flags += " --xla_backend_optimization_level=0"
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.scaling", "--here"],
        env={**os.environ, "XLA_FLAGS": flags},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return output


def collectives_here() -> str:
    """The same table, in a process that has the devices."""
    import nvgd
    from benchmarks.scaling.collectives import step_program, traffic
    from nvgd._support.devices import Placement
    from nvgd.densities import Funnel

    target = nvgd.Target(Funnel(10).log_density, dim=10)
    flows = {
        "NVGD": nvgd.NVGD().for_run(1000),
        "NVGD paper": nvgd.NVGD.paper(),
        "SVGD": nvgd.SVGD(),
        "ULA": nvgd.ULA(),
    }
    lines = [["", "particles", "collectives (times executed)", "bytes per step"]]
    for name, flow in flows.items():
        for num_particles in (2048, 8192):
            program = step_program(flow, target, num_particles, Placement.of(DEVICES))
            found = traffic(program, INNER_STEPS)
            calls = ", ".join(f"{kind} {number}" for kind, number in sorted(found.calls.items()))
            total = f"{sum(found.bytes.values()):,}"
            lines.append([name, f"{num_particles:,}", calls, total])
    return markdown(lines)


def particles() -> str:
    """A table of times and memory."""
    from benchmarks.scaling.particles import CASES, measure

    lines = [["", "particles", "dimensions", "s per step", "ns per particle and step", "GB"]]
    for method, cases in CASES.items():
        for num_particles, dim in cases:
            found = measure(method, num_particles, dim)
            per_particle = found["seconds"] / num_particles * 1e9
            lines.append(
                [
                    method,
                    f"{num_particles:,}",
                    str(dim),
                    f"{found['seconds']:.2f}",
                    f"{per_particle:,.0f}",
                    f"{found['gigabytes']:.2f}",
                ]
            )
            print(lines[-1], file=sys.stderr, flush=True)
    return markdown(lines)


def mapped() -> str:
    """Memory and time of a run on 24 GB."""
    from benchmarks.scaling.mapped import measure

    return json.dumps(measure(), indent=1)


def kills() -> str:
    """Whether a run that is killed fifty times ends as one without interruption."""
    from benchmarks.scaling.kills import measure

    return json.dumps(measure(), indent=1)


PARTS: dict[str, Callable[[], str]] = {
    "collectives": collectives,
    "particles": particles,
    "mapped": mapped,
    "kills": kills,
}


def main() -> None:
    """Measure the named parts, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all if omitted")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.parts) - set(PARTS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(PARTS)}.")
    if arguments.here:
        print(collectives_here())
        return
    for name in arguments.parts or PARTS:
        print(f"\n## {name}\n\n{PARTS[name]()}", flush=True)


if __name__ == "__main__":
    main()
