"""The measurements, one function a part; each returns numbers beside their limits."""

import contextlib
import os
import pty
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from threadpoolctl import threadpool_limits

import nvgd
from benchmarks.speed.measure import (
    Measurement,
    fastest,
    memory_of,
    seconds_of_processes,
    slope,
)
from benchmarks.speed.yardstick import Settings, initial_network, matrix_products, plain_flow
from nvgd.densities import Funnel, Gaussian
from nvgd.flow import ParticleFlow
from nvgd.metrics import Reference

KEY = jax.random.key(0)


def scanned(
    flow: ParticleFlow, target: nvgd.Target, particles: jax.Array, num_steps: int
) -> tuple[Callable[[], Any], jax.stages.Compiled, float]:
    """A compiled scan of steps, its program, and the processor seconds of its compilation."""
    started = time.process_time()
    state = flow.init(target, particles, key=KEY)

    def run(state: Any, key: jax.Array) -> Any:
        return jax.lax.scan(
            lambda state, _: flow.step(target, state, key=key), state, length=num_steps
        )

    compiled = jax.jit(run).lower(state, KEY).compile()
    seconds = time.process_time() - started
    return lambda: compiled(state, KEY), compiled, seconds


def plain(
    log_density: Callable, particles: jax.Array, num_steps: int, settings: Settings
) -> tuple[Callable[[], Any], float]:
    """The yardstick, compiled, and the processor seconds that took."""
    started = time.process_time()
    network = initial_network(KEY, particles.shape[1])
    optimizer = optax.adam(settings.learning_rate).init(network)
    run = plain_flow(log_density, num_steps, settings)
    compiled = jax.jit(run).lower(particles, network, optimizer, KEY).compile()
    seconds = time.process_time() - started
    return lambda: compiled(particles, network, optimizer, KEY), seconds


def training_step() -> list[Measurement]:
    """Part 1: one training step of the paper's witness."""
    measurements = []
    inner, num_steps = 50, 4
    for dim, num_particles, most in ((2, 100, 4.0), (50, 1000, 2.5)):
        density = Funnel(dim) if dim == 2 else Gaussian(np.zeros(dim), np.linspace(0.5, 2, dim))
        particles = jax.random.normal(KEY, (num_particles, dim))
        target = nvgd.Target(density.log_density, dim=dim)
        # Patience beyond the limit: every iteration takes all of its steps.
        ours = nvgd.NVGD.paper(max_inner_steps=inner, patience=inner + 2)
        sampled = nvgd.NVGD.paper(
            max_inner_steps=inner,
            patience=inner + 2,
            divergence=nvgd.HutchinsonDivergence("gaussian"),
        )
        settings = Settings(max_inner_steps=inner, patience=inner + 1)
        products = matrix_products(dim, num_particles)
        with threadpool_limits(1):
            runs = {
                "ours": scanned(ours, target, particles, num_steps)[0],
                "probes": scanned(sampled, target, particles, num_steps)[0],
                "plain": plain(density.log_density, particles, num_steps, settings)[0],
                "numpy": lambda products=products: [products() for _ in range(inner * num_steps)],
            }
            for run in runs.values():
                jax.block_until_ready(run())
            seconds = fastest(runs, 40 if dim == 2 else 10)
        micro = {name: 1e6 * value / (inner * num_steps) for name, value in seconds.items()}
        label = f"d = {dim}, n = {num_particles}"
        least = 1.6 if dim == 2 else None
        measurements += [
            Measurement(1, f"training step, {label}", micro["ours"], "µs"),
            Measurement(
                1, f"yardstick / ours, {label}", micro["plain"] / micro["ours"], at_least=least
            ),
            Measurement(
                1, f"ours / NumPy products, {label}", micro["ours"] / micro["numpy"], at_most=most
            ),
            Measurement(
                1,
                f"yardstick / ours with Gaussian probes, {label}",
                micro["plain"] / micro["probes"],
            ),
        ]
    return measurements


def time_to_quality() -> list[Measurement]:
    """Part 2: until 100 particles on the 2-D funnel are as good as exact draws by MMD²."""
    num_steps, every, seeds = 1000, 20, 4
    funnel = Funnel(2)
    target = nvgd.Target(funnel.log_density, dim=2)
    reference = Reference(funnel.sample(jax.random.key(2), 2000))
    level = np.mean(
        [reference.mmd_squared(funnel.sample(jax.random.key(1000 + i), 100)) for i in range(40)]
    )
    starts = [jax.random.normal(jax.random.key(i), (100, 2)) for i in range(seeds)]

    def steps_needed(paths: list[np.ndarray]) -> float:
        """The first step from which the mean over seeds is at the level; infinity if never."""
        curves = [
            [float(reference.mmd_squared(jnp.asarray(path[i]))) for i in range(0, num_steps, every)]
            for path in paths
        ]
        reached = np.flatnonzero(np.mean(curves, axis=0) <= level)
        return float(reached[0] * every) if len(reached) else np.inf

    def ours(**options: Any) -> tuple[float, float, float]:
        flow = nvgd.NVGD.paper(1e-2, **options)
        started = time.process_time()
        state = flow.init(target, starts[0], key=KEY)

        def run(state: Any, key: jax.Array) -> jax.Array:
            def step(state: Any, _: None) -> tuple[Any, jax.Array]:
                state, _info = flow.step(target, state, key=key)
                return state, state.particles

            return jax.lax.scan(step, state, length=num_steps)[1]

        compiled = jax.jit(run).lower(state, KEY).compile()
        compilation = time.process_time() - started
        states = [flow.init(target, x, key=jax.random.key(i)) for i, x in enumerate(starts)]
        paths = [np.asarray(compiled(state, KEY)) for state in states]
        run_seconds = fastest({"run": lambda: compiled(states[0], KEY)}, 3)["run"]
        return run_seconds / num_steps * steps_needed(paths), compilation, steps_needed(paths)

    settings = Settings()
    started = time.process_time()
    network = initial_network(KEY, 2)
    optimizer = optax.adam(settings.learning_rate).init(network)
    run = plain_flow(funnel.log_density, num_steps, settings)
    compiled = jax.jit(run).lower(starts[0], network, optimizer, KEY).compile()
    plain_compilation = time.process_time() - started
    paths = [np.asarray(compiled(x, network, optimizer, KEY)[1]) for x in starts]
    seconds = fastest({"run": lambda: compiled(starts[0], network, optimizer, KEY)}, 3)["run"]
    plain_seconds = seconds / num_steps * steps_needed(paths)

    paper, paper_compilation, paper_steps = ours()
    solved, solved_compilation, solved_steps = ours(
        output_layer="solved", max_inner_steps=3, learning_rate=1e-3
    )
    return [
        Measurement(2, "yardstick to quality", plain_seconds, "s"),
        Measurement(2, f"ours, trained as the paper does ({paper_steps:g} steps)", paper, "s"),
        Measurement(2, f"ours, output layer solved ({solved_steps:g} steps)", solved, "s"),
        Measurement(2, "yardstick / paper's training", plain_seconds / paper),
        Measurement(2, "yardstick / output solved", plain_seconds / solved, at_least=4),
        Measurement(2, "compilation, yardstick", plain_compilation, "s"),
        Measurement(2, "compilation, paper's training", paper_compilation, "s", at_most=5.5),
        Measurement(2, "compilation, output solved", solved_compilation, "s", at_most=5.5),
    ]


def cost_in_particles() -> list[Measurement]:
    """Part 3: processor time and memory a step as n grows."""
    dim, measurements = 10, []
    sizes = {
        "NVGD": (nvgd.NVGD(), (1000, 10_000, 100_000), 1.1),
        "NVGD.paper, 10 inner steps": (
            nvgd.NVGD.paper(max_inner_steps=10),
            (1000, 10_000, 100_000),
            1.1,
        ),
        "SVGD": (nvgd.SVGD(), (500, 1000, 2000), None),
    }
    target = nvgd.Target(lambda x: -0.5 * x @ x, dim=dim)
    for name, (flow, counts, limit) in sizes.items():
        seconds, memory = [], []
        for count in counts:
            particles = jax.random.normal(KEY, (count, dim))
            run, compiled, _ = scanned(flow, target, particles, 1)
            rounds = 6 if count < 50_000 else 2
            seconds.append(fastest({"run": run}, rounds, time.process_time)["run"])
            memory.append(memory_of(compiled))
            label = f"{name}, n = {count:,}"
            measurements += [
                Measurement(3, f"step, {label}", 1e3 * seconds[-1], "ms"),
                Measurement(3, f"memory, {label}", memory[-1] / 1e6, "MB"),
            ]
        measurements += [
            Measurement(3, f"exponent of time, {name}", slope(counts, seconds), at_most=limit),
            Measurement(3, f"exponent of memory, {name}", slope(counts, memory), at_most=limit),
        ]
    code = (
        "import resource, jax, nvgd;"
        f"x = jax.random.normal(jax.random.key(0), (20000, {dim}));"
        "d = nvgd.KernelDirection();"
        "f = jax.jit(lambda x: d(x, -x, None, key=jax.random.key(0))[0]);"
        "jax.block_until_ready(f(x));"
        "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6;"
        "open(__import__('os').environ['PEAK'], 'w').write(str(peak))"
    )
    with tempfile.NamedTemporaryFile("r") as file:
        seconds_of_processes({"svgd": code}, 1, PEAK=file.name)
        peak = float(file.read())
    measurements.append(Measurement(3, "whole process, SVGD, n = 20,000", peak, "GB", at_most=2.0))
    return measurements


def cost_in_dimensions() -> list[Measurement]:
    """Part 4: processor time and memory a step as d grows, with probes and with the closed form."""
    measurements, dims = [], (10, 100, 1000, 10_000)
    for name, divergence in (("Hutchinson", "hutchinson"), ("closed form", "exact")):
        seconds, memory = [], []
        for dim in dims:
            target = nvgd.Target(lambda x: -0.5 * x @ x, dim=dim)
            flow = nvgd.NVGD.paper(max_inner_steps=10, divergence=divergence)
            run, compiled, _ = scanned(flow, target, jax.random.normal(KEY, (100, dim)), 2)
            jax.block_until_ready(run())
            seconds.append(fastest({"run": run}, 7, time.process_time)["run"] / 2)
            memory.append(memory_of(compiled))
            measurements += [
                Measurement(4, f"step, {name}, d = {dim:,}", 1e3 * seconds[-1], "ms"),
                Measurement(4, f"memory, {name}, d = {dim:,}", memory[-1] / 1e6, "MB"),
            ]
        measurements += [
            Measurement(4, f"exponent of time, {name}", slope(dims, seconds), at_most=1.1),
            Measurement(4, f"exponent of memory, {name}", slope(dims, memory), at_most=1.1),
        ]
    return measurements


def start_up() -> list[Measurement]:
    """Part 5: imports, the first step, and the first step again from the cache."""
    imports = seconds_of_processes(
        {"base": "import jax, equinox, optax", "nvgd": "import nvgd"}, rounds=7
    )
    step = (
        "import nvgd; from nvgd.compilation import keep_compiled_programs as keep;"
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
    """Standard error on a terminal that nobody looks at, so that the bar is drawn."""
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


PARTS: dict[int, Callable[[], list[Measurement]]] = {
    1: training_step,
    2: time_to_quality,
    3: cost_in_particles,
    4: cost_in_dimensions,
    5: start_up,
    6: loop_overhead,
}
