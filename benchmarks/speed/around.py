"""Parts 5 and 6: start-up, and the overhead of the loop of `sample`."""

import contextlib
import os
import pty
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import jax

import nvgd
from benchmarks.speed.measure import Measurement, fastest, seconds_of_processes
from benchmarks.speed.programs import KEY, scanned
from nvgd.densities import Funnel


def start_up() -> list[Measurement]:
    """Part 5: imports, the first step, and the first step again from the cache."""
    with tempfile.TemporaryDirectory() as directory:
        # Byte code is kept, as for an installed package.
        imports = seconds_of_processes(
            {"base": "import jax, equinox, optax", "nvgd": "import nvgd"},
            rounds=8,
            PYTHONDONTWRITEBYTECODE="",
            PYTHONPYCACHEPREFIX=directory,
        )
    step = (
        "import nvgd; from nvgd._support.program_cache import keep_compiled_programs as keep;"
        "from nvgd.densities import Funnel; keep();"
        "nvgd.sample(Funnel(2).log_density, nvgd.NVGD.paper(), dim=2, num_steps=1, progress=False)"
    )
    codes = {"paper": step, "default": step.replace(".paper()", "()")}
    with tempfile.TemporaryDirectory() as directory:
        first = seconds_of_processes(codes, 1, XDG_CACHE_HOME=directory)
        again = seconds_of_processes(codes, 2, XDG_CACHE_HOME=directory)
    base = imports["base"]
    return [
        Measurement(5, "import nvgd / jax + equinox + optax", imports["nvgd"] / base, at_most=1.3),
        Measurement(5, "import jax + equinox + optax", base, "s"),
        Measurement(5, "process to the first step, demo's NVGD", first["paper"], "s"),
        Measurement(5, "of which not the import", first["paper"] - imports["nvgd"], "s", at_most=6),
        Measurement(5, "the same again, from the cache", again["paper"], "s"),
        Measurement(5, "process to the first step, NVGD()", first["default"], "s"),
        Measurement(5, "the same again, from the cache", again["default"], "s"),
    ]


def loop_overhead() -> list[Measurement]:
    """Part 6: `sample` with bar and history against a bare scan of the same steps."""
    num_steps, funnel = 2000, Funnel(2)
    target = nvgd.Target(funnel.log_density, dim=2)
    particles = jax.random.normal(KEY, (100, 2))
    flow = nvgd.NVGD.paper(max_inner_steps=10)
    bare, _, _ = scanned(flow, target, particles, num_steps)

    def sampled() -> Any:
        return nvgd.sample(target, flow, initial=particles, num_steps=num_steps).particles

    with terminal():
        jax.block_until_ready((bare(), sampled()))
        seconds = fastest({"bare": bare, "sample": sampled}, 7)
    share = seconds["sample"] / seconds["bare"]
    return [
        Measurement(6, f"bare scan of {num_steps} steps", seconds["bare"], "s"),
        Measurement(6, "sample() / bare scan", share, at_most=1.1),
    ]


@contextlib.contextmanager
def terminal() -> Iterator[None]:
    """Standard error on a pseudo-terminal, so that the progress bar is drawn."""
    reader, writer = pty.openpty()
    shown, sys.stderr = sys.stderr, os.fdopen(writer, "w")

    def drain() -> None:
        with contextlib.suppress(OSError):
            while os.read(reader, 4096):
                pass

    drainer = threading.Thread(target=drain, daemon=True)
    drainer.start()
    try:
        yield
    finally:
        sys.stderr.close()
        sys.stderr = shown
        drainer.join(timeout=5)
        os.close(reader)
