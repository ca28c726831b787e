"""A deep ensemble with the networks, batches and number of gradients of the particles.

Every member starts from its own draw and climbs the likelihood with Adam on batches of its own
(Lakshminarayanan, Pritzel and Blundell, 2017). The noise is a parameter of each member. The rate is
chosen per split, on a tenth of its training rows, with full runs whose gradients are not counted;
rates grow by half decades until the best is not the largest.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from nvgd._support.compilation import Form
from nvgd.targets.target import Target

RATES = (3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)


def deep_ensemble(
    target: Target, *, num_members: int, num_steps: int, rate: float, seed: int
) -> Any:
    """Positions of the trained members, with a leading axis."""
    start_key, batch_key = jax.random.split(jax.random.key(seed))
    start = target.flatten(target.model.draw_start(start_key, num_members))
    schedule = optax.cosine_decay_schedule(rate, num_steps)
    trained = _train(target, start, batch_key, num_steps, optax.adam(schedule))
    return jax.vmap(target.structure)(trained)


@functools.partial(jax.jit, static_argnums=(0, 3, 4))
def _climb(static: Any, arrays: Any, start: Array, num_steps: int, adam: Any, key: Array) -> Array:
    target: Target = static.tree(arrays)
    likelihood: Any = target.log_likelihood

    def loss(position: Array, rows: Array) -> Array:
        batch = target.batch(rows)
        terms = jax.vmap(likelihood, in_axes=(None, 0))(target.structure(position), batch)
        return -jnp.mean(terms)

    def step(carry: tuple[Array, Any], number: Array) -> tuple[tuple[Array, Any], None]:
        positions, state = carry
        shape = (len(positions), target.batch_size)
        rows = jax.random.randint(jax.random.fold_in(key, number), shape, 0, target.num_rows)
        gradients = jax.vmap(jax.grad(loss))(positions, rows)
        updates, state = adam.update(gradients, state)
        return (positions + updates, state), None

    (positions, _), _ = jax.lax.scan(step, (start, adam.init(start)), jnp.arange(num_steps))
    return positions


def _train(target: Target, start: Array, key: Array, num_steps: int, adam: Any) -> Array:
    return _climb(*Form.of(target), start, num_steps, adam, key)


def best_rate(
    tuning_target: Target, x: np.ndarray, y: np.ndarray, *, num_members: int, num_steps: int
) -> float:
    """The rate with the largest log likelihood of held-out rows (x, y)."""

    def score(rate: float) -> float:
        members = deep_ensemble(
            tuning_target, num_members=num_members, num_steps=num_steps, rate=rate, seed=0
        )
        model: Any = tuning_target.model
        found = model.predict(jax.random.key(0), members, x, y=y, quantiles=(), samples=False)
        value = float(np.mean(found.log_likelihood))
        return value if np.isfinite(value) else -np.inf

    scores: list[float] = []
    for rate in RATES:
        scores.append(score(rate))
        if scores[-1] < max(scores):
            break
    return RATES[int(np.argmax(scores))]
