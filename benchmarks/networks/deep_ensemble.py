"""A deep ensemble with the networks, batches and number of gradients of the particles.

Every member starts from its own draw and climbs the likelihood with Adam on batches of its own
(Lakshminarayanan, Pritzel and Blundell, 2017). The noise is a parameter of each member.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from nvgd._support.compilation import Form
from nvgd.targets.target import Target


def deep_ensemble(
    target: Target, *, num_members: int, num_steps: int, rate: float, seed: int
) -> Any:
    """Positions of the trained members, with a leading axis."""
    start_key, batch_key = jax.random.split(jax.random.key(seed))
    start = target.flatten(target.model.draw_start(start_key, num_members))
    trained = _climb(*Form.of(target), start, num_steps, jnp.asarray(rate), batch_key)
    return jax.vmap(target.structure)(trained)


@functools.partial(jax.jit, static_argnums=(0, 3))
def _climb(
    static: Any, arrays: Any, start: Array, num_steps: int, rate: Array, key: Array
) -> Array:
    target: Target = static.tree(arrays)
    adam = annealed_adam(rate, num_steps)
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


def annealed_adam(rate: Array, num_steps: int) -> optax.GradientTransformation:
    """Adam whose rate, an array, falls to zero along a cosine."""
    unit = optax.cosine_decay_schedule(1.0, num_steps)
    return optax.adam(lambda count: rate * unit(count))
