"""A plain implementation of the paper, and the bare matrix products of a training step.

`plain_flow` is the paper's Algorithm 1 as a `while_loop` inside a `scan`, with optax: the yardstick
for the library's own loop. It is not part of the library.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

WIDTH = 32


class Settings(NamedTuple):
    """The paper's settings on the funnel."""

    step_size: float = 1e-2
    learning_rate: float = 1e-4
    max_inner_steps: int = 50
    patience: int = 15
    train_fraction: float = 2 / 3


def initial_network(key: jax.Array, dim: int) -> dict[str, Any]:
    """A network with two hidden layers of 32 units."""
    sizes = (dim, WIDTH, WIDTH, dim)
    draw = jax.nn.initializers.he_normal(in_axis=-1, out_axis=-2)
    keys = jax.random.split(key, 3)
    return {
        "weights": [
            draw(k, (outputs, inputs))
            for k, inputs, outputs in zip(keys, sizes[:-1], sizes[1:], strict=True)
        ],
        "biases": [jnp.zeros(outputs) for outputs in sizes[1:]],
        "scale": jnp.ones(()),
    }


def _field(network: dict[str, Any], x: jax.Array) -> jax.Array:
    for weight, bias in zip(network["weights"][:-1], network["biases"][:-1], strict=True):
        x = jax.nn.silu(weight @ x + bias)
    return network["scale"] * (network["weights"][-1] @ x + network["biases"][-1])


def _objective(network: dict, x: jax.Array, score: jax.Array, probe: jax.Array) -> jax.Array:
    def one(x: jax.Array, score: jax.Array, probe: jax.Array) -> jax.Array:
        value, tangent = jax.jvp(lambda y: _field(network, y), (x,), (probe,))
        return value @ score + probe @ tangent - 0.5 * value @ value

    return jnp.mean(jax.vmap(one)(x, score, probe))


def plain_flow(
    log_density: Callable[[jax.Array], jax.Array], num_steps: int, settings: Settings
) -> Callable:
    """A function of particles, network, optimiser state and key that takes `num_steps` steps.

    It returns the last state, and the particles after every step.
    """
    adam = optax.adam(settings.learning_rate)

    def train(network: dict, optimizer: Any, x: jax.Array, scores: jax.Array, key: jax.Array):
        num_particles, dim = x.shape
        num_train = round(settings.train_fraction * num_particles)
        split_key, key = jax.random.split(key)
        order = jax.random.permutation(split_key, num_particles)
        rows, held_out = order[:num_train], order[num_train:]

        def goes_on(carry):
            *_, step, since_best = carry
            return (step < settings.max_inner_steps) & (since_best < settings.patience)

        def body(carry):
            network, optimizer, best, best_value, step, since_best = carry
            train_key, validation_key = jax.random.split(jax.random.fold_in(key, step))
            probe = jax.random.normal(train_key, (num_train, dim))
            gradient = jax.grad(lambda n: -_objective(n, x[rows], scores[rows], probe))(network)
            updates, optimizer = adam.update(gradient, optimizer, network)
            network = optax.apply_updates(network, updates)
            probe = jax.random.normal(validation_key, (num_particles - num_train, dim))
            value = _objective(network, x[held_out], scores[held_out], probe)
            is_better = value > best_value
            best = jax.tree.map(lambda a, b: jnp.where(is_better, a, b), network, best)
            best_value = jnp.where(is_better, value, best_value)
            since_best = jnp.where(is_better, 0, since_best + 1)
            return network, optimizer, best, best_value, step + 1, since_best

        carry = (network, optimizer, network, -jnp.inf, 0, 0)
        _, optimizer, best, *_ = jax.lax.while_loop(goes_on, body, carry)
        return best, optimizer

    def step(carry, key):
        x, network, optimizer = carry
        scores = jax.vmap(jax.grad(log_density))(x)
        network, optimizer = train(network, optimizer, x, scores, key)
        x = x + settings.step_size * jax.vmap(lambda y: _field(network, y))(x)
        return (x, network, optimizer), x

    def run(x: jax.Array, network: dict, optimizer: Any, key: jax.Array):
        return jax.lax.scan(step, (x, network, optimizer), jax.random.split(key, num_steps))

    return run


def matrix_products(dim: int, num_particles: int) -> Callable[[], None]:
    """Only the matrix products of one of the library's training steps, in NumPy.

    `nvgd.stein.MLP.values_and_divergences` has the hidden layers, their slopes and the coupling of
    the closed-form trace that these products stand for.
    """
    rng = np.random.default_rng(0)
    num_train = round(2 / 3 * num_particles)

    def matrix(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    weights = {"in": matrix(WIDTH, dim), "mid": matrix(WIDTH, WIDTH), "out": matrix(dim, WIDTH)}
    square = matrix(WIDTH, WIDTH)
    products: list[tuple[np.ndarray, np.ndarray]] = [(weights["in"], weights["out"])]
    for rows in (num_train, num_particles - num_train):
        x, hidden = matrix(rows, dim), matrix(rows, WIDTH)
        products += [
            (x, weights["in"].T),
            (hidden, weights["mid"].T),
            (hidden, square.T),
            (hidden, weights["out"].T),
        ]
    x, hidden = matrix(num_train, dim), matrix(num_train, WIDTH)
    products += [
        (x.T, hidden),
        (x, weights["out"]),
        (hidden.T, hidden),
        (hidden, square),
        (hidden.T, hidden),
        (hidden, weights["mid"]),
        (hidden.T, x),
        (square, weights["out"].T),
        (weights["in"].T, square),
    ]
    results = [np.empty((a.shape[0], b.shape[1]), np.float32) for a, b in products]

    def run() -> None:
        for (a, b), result in zip(products, results, strict=True):
            np.matmul(a, b, out=result)

    return run
