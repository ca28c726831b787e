"""Compiled runs of the library's flows and of the yardstick."""

import time
from collections.abc import Callable
from typing import Any

import jax
import optax

import nvgd
from benchmarks.speed.yardstick import Settings, initial_network, plain_flow
from nvgd.flow.particle_flow import ParticleFlow

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
    """The compiled yardstick, and the processor seconds of its compilation."""
    started = time.process_time()
    network = initial_network(KEY, particles.shape[1])
    optimizer = optax.adam(settings.learning_rate).init(network)
    run = plain_flow(log_density, num_steps, settings)
    compiled = jax.jit(run).lower(particles, network, optimizer, KEY).compile()
    seconds = time.process_time() - started
    return lambda: compiled(particles, network, optimizer, KEY), seconds
