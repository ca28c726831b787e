"""The time of a step of `nvgd.sample` beside an Adam step of the same networks on the same rows.

    python -m benchmarks.networks.speed

One hundred networks, batches of 128 rows: the convolutional network of the paper's Figure 7 (4,594
weights) and one hidden layer of 50 units (751 weights and a noise). Adam's steps are one compiled
loop over all networks at once. Both are measured as processor seconds of long runs beyond short
ones, so that start and compilation do not count; the least of several rounds is taken. Prints the
ratios and, in one line each, those above the limit in `benchmarks/budgets.toml`.
"""

import functools
import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

import nvgd
from benchmarks.startup.budgets import Limited, limit, read
from nvgd._support.compilation import Form
from nvgd.experiments.network import NUM_PARAMETERS, SETTINGS, log_likelihood, log_prior

NUM_NETWORKS, BATCH_SIZE, NUM_ROWS = 100, 128, 4000
ROUNDS = 3


def main() -> None:
    """Print both ratios, and what is over its limit."""
    at_most = limit(read(), "networks", "step_ratio_to_adam")
    for name, target, num_steps in (
        ("50 units", small_network(), 300),
        ("convolutional", convolutional_network(), 30),
    ):
        ours, adam = seconds_per_step(target, num_steps)
        print(
            f"{name}, {target.dim} parameters: step {1e3 * ours:.2f} ms, Adam {1e3 * adam:.2f} ms, "
            f"ratio {ours / adam:.2f}",
            flush=True,
        )
        ratio = Limited(f"{name}: step over Adam step", ours / adam, at_most)
        if ratio.is_over:
            print(f"OVER {ratio}", flush=True)


def small_network() -> nvgd.Target:
    """A regression with 13 features, as Boston housing has."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_ROWS, 13))
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=NUM_ROWS)
    network = eqx.nn.MLP(13, 1, 50, 1, key=jax.random.key(0))
    return nvgd.from_network(network, data=(x, y), batch_size=BATCH_SIZE)


def convolutional_network() -> nvgd.Target:
    """The network of Figure 7, on random images."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (NUM_ROWS, 28, 28)).astype(np.uint8)
    labels = rng.integers(0, 10, NUM_ROWS).astype(np.uint8)
    setting = SETTINGS["unit"]
    return nvgd.Target(
        functools.partial(log_prior, setting),
        dim=NUM_PARAMETERS,
        log_likelihood=functools.partial(log_likelihood, setting),
        data=(images, labels),
        batch_size=BATCH_SIZE,
        vectorised=True,
        particles_at_once=1,
    )


def seconds_per_step(target: nvgd.Target, num_steps: int) -> tuple[float, float]:
    """Processor seconds per step of `nvgd.sample` and of Adam, measured in turns."""
    start = 0.1 * jax.random.normal(jax.random.key(1), (NUM_NETWORKS, target.dim))
    static, arrays = Form.of(target)

    def sampled(length: int) -> object:
        return nvgd.sample(target, initial=start, num_steps=length, progress=False).particles

    def climbed(length: int) -> object:
        return _climb(static, arrays, start, jnp.array(length))

    runs, lengths = (sampled, climbed), (num_steps, 3 * num_steps)
    for run in runs:
        run(num_steps)
    # Least over the rounds first, differences then: a difference of two noisy times has no floor.
    rounds = [
        [[_seconds(run, length) for length in lengths] for run in runs] for _ in range(ROUNDS)
    ]
    short, long = np.min(rounds, axis=0).T
    ours, adam = (long - short) / (2 * num_steps)
    return float(ours), float(adam)


def _seconds(run: Callable[[int], object], length: int) -> float:
    started = time.process_time()
    jax.block_until_ready(run(length))
    return time.process_time() - started


@functools.partial(jax.jit, static_argnums=0)
def _climb(static: Form, arrays: list[Array], start: Array, length: Array) -> Array:
    target: nvgd.Target = static.tree(arrays)
    adam, key = optax.adam(1e-3), jax.random.key(0)

    def step(number: Array, carry: tuple[Array, optax.OptState]) -> tuple[Array, optax.OptState]:
        networks, state = carry
        row_key = jax.random.fold_in(key, number)
        rows = jax.random.randint(row_key, (BATCH_SIZE,), 0, target.num_rows)
        scores = target.log_densities_and_scores(networks, target.batch(rows)).scores
        updates, state = adam.update(-scores, state)
        return networks + jnp.asarray(updates), state

    return jax.lax.fori_loop(0, length, step, (start, adam.init(start)))[0]


if __name__ == "__main__":
    main()
