"""`python -m benchmarks.scaling [parts]`: the tables of docs/scaling.md, as text.

What needs several devices runs on virtual ones, in a process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable

from nvgd.tables import markdown

DEVICES = 8
INNER_STEPS = 10


def collectives() -> str:
    """A table of what a step sends, by method and number of particles."""
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
    """The same, where there are devices."""
    import nvgd
    from benchmarks.scaling.collectives import step_program, traffic
    from nvgd.densities import Funnel
    from nvgd.sharding import Layout

    target = nvgd.Target(Funnel(10).log_density, dim=10)
    flows = {
        "NVGD": nvgd.NVGD().for_run(1000),
        "NVGD paper": nvgd.NVGD.paper(),
        "SVGD": nvgd.SVGD(),
        "ULA": nvgd.ULA(),
    }
    lines = [["", "particles", "collectives (times executed)", "bytes a step"]]
    for name, flow in flows.items():
        for num_particles in (2048, 8192):
            found = traffic(
                step_program(flow, target, num_particles, Layout.of(DEVICES)), INNER_STEPS
            )
            calls = ", ".join(f"{kind} {number}" for kind, number in sorted(found.calls.items()))
            total = f"{sum(found.bytes.values()):,}"
            lines.append([name, f"{num_particles:,}", calls, total])
    return markdown(lines)


def particles() -> str:
    """A table of times and memory, and the cost model that fits them."""
    from benchmarks.scaling.particles import CASES, measure

    lines = [["", "particles", "dimensions", "s a step", "ns a particle and step", "GB"]]
    for method, cases in CASES.items():
        for num_particles, dim in cases:
            found = measure(method, num_particles, dim)
            a_particle = found["seconds"] / num_particles * 1e9
            lines.append(
                [
                    method,
                    f"{num_particles:,}",
                    str(dim),
                    f"{found['seconds']:.2f}",
                    f"{a_particle:,.0f}",
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
    """Fifty kills."""
    from benchmarks.scaling.kills import measure

    return json.dumps(measure(), indent=1)


PARTS: dict[str, Callable[[], str]] = {
    "collectives": collectives,
    "particles": particles,
    "mapped": mapped,
    "kills": kills,
}


def main() -> None:
    """Measure the parts that were named, or all."""
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
