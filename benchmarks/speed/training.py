"""Parts 1 and 2: a training step, and the time until the particles are as good as exact draws."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from threadpoolctl import threadpool_limits

import nvgd
from benchmarks.speed.measure import Measurement, fastest
from benchmarks.speed.programs import KEY, plain, scanned
from benchmarks.speed.yardstick import Settings, initial_network, matrix_products, plain_flow
from nvgd.densities import Funnel, Gaussian
from nvgd.metrics import Reference


def training_step() -> list[Measurement]:
    """Part 1: one training step of the paper's witness."""
    measurements = []
    inner, num_steps = 50, 4
    for dim, num_particles, most in ((2, 100, 4.0), (50, 1000, 2.5)):
        density = Funnel(dim) if dim == 2 else Gaussian(np.zeros(dim), np.linspace(0.5, 2, dim))
        particles = jax.random.normal(KEY, (num_particles, dim))
        target = nvgd.Target(density.log_density, dim=dim)
        # With patience beyond the limit every iteration takes all of its steps.
        ours = nvgd.NVGD.paper(max_inner_steps=inner, patience=inner + 2)
        sampled = nvgd.NVGD.paper(
            max_inner_steps=inner,
            patience=inner + 2,
            divergence=nvgd.stein.HutchinsonDivergence("gaussian"),
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
    """Part 2: time until 100 particles on the 2-D funnel have the MMD² of exact draws."""
    num_steps, every, seeds = 1000, 20, 4
    funnel = Funnel(2)
    target = nvgd.Target(funnel.log_density, dim=2)
    reference = Reference(funnel.sample(jax.random.key(2), 2000))
    level = np.mean(
        [reference.mmd_squared(funnel.sample(jax.random.key(1000 + i), 100)) for i in range(40)]
    )
    starts = [jax.random.normal(jax.random.key(i), (100, 2)) for i in range(seeds)]

    def steps_needed(paths: list[np.ndarray]) -> float:
        """The first step at which the mean over seeds is at the level; infinity if never."""
        curves = [
            [float(reference.mmd_squared(jnp.asarray(path[i]))) for i in range(0, num_steps, every)]
            for path in paths
        ]
        reached = np.flatnonzero(np.mean(curves, axis=0) <= level)
        return float(reached[0] * every) if len(reached) else np.inf

    def ours() -> tuple[float, float, float]:
        """Seconds to the level, processor seconds of the compilation, steps to the level."""
        flow = nvgd.NVGD.paper(1e-2)
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
    return [
        Measurement(2, "yardstick to quality", plain_seconds, "s"),
        Measurement(2, f"ours, trained as the paper does ({paper_steps:g} steps)", paper, "s"),
        Measurement(2, "yardstick / paper's training", plain_seconds / paper),
        Measurement(2, "compilation, yardstick", plain_compilation, "s"),
        Measurement(2, "compilation, paper's training", paper_compilation, "s", at_most=5.5),
    ]
