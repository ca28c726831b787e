"""Runs that are timed piece by piece and measured in between, off the clock.

Times are processor seconds of all threads, which other work on the machine disturbs little.
"""

import dataclasses
import time
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

import nvgd
from benchmarks.rivals.methods import NUM_LOOKS, Method
from benchmarks.rivals.targets import BenchmarkTarget, as_target
from benchmarks.speed.measure import memory_of

NUTS, DEFAULT = "BlackJAX NUTS", "nvgd.NVGD()"
NUM_WARMUP = 300
# A run ends after this many processor seconds.
MOST_SECONDS = 40.0


@dataclasses.dataclass(frozen=True)
class Record:
    """The result of one method on one target, with the best of its step sizes."""

    target: str
    method: str
    step_size: float
    compilation_seconds: float
    milliseconds_per_step: float
    memory_megabytes: float | None
    """Of the compiled step; None for `nvgd.sample`, which has several programs."""
    seconds_to_level: float | None
    """None if the energy distance never reached the level."""
    level: float
    seconds: list[float]
    energy: list[float]


def particles(name: str, method: Method, target: BenchmarkTarget, seed: int) -> Record:
    """A method that moves particles: the best of its step sizes by the last energy distance."""
    records = [_particles(name, method, target, choice, seed) for choice in method.choices]
    return min(records, key=lambda record: record.energy[-1])


def _particles(
    name: str, method: Method, target: BenchmarkTarget, choice: float, seed: int
) -> Record:
    key = jax.random.key(seed)
    started = time.process_time()
    piece = method.build(target, choice, key)
    compiled = piece.advance.lower(piece.start, key).compile()  # pyright: ignore
    compilation = time.process_time() - started
    state, clock = piece.start, 0.0
    seconds, energy = [0.0], [target.energy_distance(np.asarray(piece.draws(state)))]
    jax.block_until_ready(compiled(state, key))
    fastest = np.inf
    for _ in range(NUM_LOOKS):
        started = time.process_time()
        state = jax.block_until_ready(compiled(state, key))
        spent = time.process_time() - started
        clock, fastest = clock + spent, min(fastest, spent)
        seconds.append(clock)
        energy.append(target.energy_distance(np.asarray(piece.draws(state))))
        if clock > MOST_SECONDS or not np.isfinite(energy[-1]):
            break
    return _record(
        target,
        name,
        choice,
        compilation,
        1e3 * fastest / piece.steps,
        memory_of(compiled),
        seconds,
        energy,
    )


def default(target: BenchmarkTarget, seed: int) -> Record:
    """`nvgd.sample`, called twice: what the first call takes longer is its compilation."""
    model = as_target(target)
    first, _, _ = _sampled(model, target, seed)
    second, seconds, energy = _sampled(model, target, seed)
    milliseconds = 1e3 * (seconds[-1] - seconds[0]) / target.num_steps
    return _record(target, DEFAULT, 0.0, first - second, milliseconds, None, seconds, energy)


def _sampled(
    model: nvgd.Target, target: BenchmarkTarget, seed: int
) -> tuple[float, list[float], list[float]]:
    """Seconds of a run, and at every look, the seconds up to it and the energy distance."""
    seconds, energy = [], []
    started, paused = time.process_time(), 0.0

    def look(state: Any) -> None:
        nonlocal paused
        began = time.process_time()
        seconds.append(began - started - paused)
        energy.append(target.energy_distance(np.asarray(state.particles)))
        paused += time.process_time() - began

    nvgd.sample(
        model,
        num_particles=target.num_particles,
        num_steps=target.num_steps,
        seed=seed,
        callback=look,
        metrics_every=target.num_steps // NUM_LOOKS,
        progress=False,
    )
    return time.process_time() - started - paused, seconds, energy


def nuts(target: BenchmarkTarget, seed: int) -> Record:
    """BlackJAX's NUTS: window adaptation, then draws.

    The sample after k draws is `num_particles` of them, evenly spaced; fewer draws are repeated.
    """
    warmup_key, run_key = jax.random.split(jax.random.key(seed))
    start = jax.random.normal(jax.random.key(seed), (target.dim,))
    warmup = blackjax.window_adaptation(blackjax.nuts, target.log_density)

    def adapt(key: jax.Array, position: jax.Array) -> Any:
        (state, parameters), _ = warmup.run(key, position, NUM_WARMUP)  # pyright: ignore
        return state, parameters

    draws_per_piece = target.num_particles // 4

    def advance(state: Any, parameters: Any, key: jax.Array) -> Any:
        kernel = blackjax.nuts(target.log_density, **parameters).step

        def step(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            state, _ = kernel(key, state)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(key, draws_per_piece))

    began = time.process_time()
    adapting = jax.jit(adapt).lower(warmup_key, start).compile()
    compilation = time.process_time() - began
    began = time.process_time()
    state, parameters = jax.block_until_ready(adapting(warmup_key, start))
    clock = time.process_time() - began
    began = time.process_time()
    advancing = jax.jit(advance).lower(state, parameters, run_key).compile()
    compilation += time.process_time() - began
    seconds, energy = [0.0], [target.energy_distance(np.tile(start, (target.num_particles, 1)))]
    positions: list[np.ndarray] = []
    fastest = np.inf
    for i in range(NUM_LOOKS):
        began = time.process_time()
        state, drawn = jax.block_until_ready(
            advancing(state, parameters, jax.random.fold_in(run_key, i))
        )
        spent = time.process_time() - began
        clock, fastest = clock + spent, min(fastest, spent)
        positions.append(np.asarray(drawn))
        chain = np.concatenate(positions)
        index = np.linspace(0, len(chain) - 1, target.num_particles).round().astype(int)
        seconds.append(clock)
        energy.append(target.energy_distance(chain[index]))
        if clock > MOST_SECONDS:
            break
    return _record(
        target,
        NUTS,
        float(jnp.asarray(parameters["step_size"])),
        compilation,
        1e3 * fastest / draws_per_piece,
        memory_of(advancing),
        seconds,
        energy,
    )


def _record(
    target: BenchmarkTarget,
    method: str,
    step_size: float,
    compilation: float,
    milliseconds: float,
    memory: int | None,
    seconds: list[float],
    energy: list[float],
) -> Record:
    reached = [t for t, value in zip(seconds, energy, strict=True) if value <= target.level]
    return Record(
        target=target.name,
        method=method,
        step_size=step_size,
        compilation_seconds=compilation,
        milliseconds_per_step=milliseconds,
        memory_megabytes=None if memory is None else memory / 1e6,
        seconds_to_level=reached[0] if reached else None,
        level=target.level,
        seconds=seconds,
        # JSON has no infinity.
        energy=[value if np.isfinite(value) else 1e9 for value in energy],
    )
