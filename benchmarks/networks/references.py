"""Long NUTS chains on the posterior of a small network, given all rows."""

import importlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nvgd.targets.target import Target


class ReferenceChains(NamedTuple):
    """Draws of all chains, and R-hat of what the networks predict."""

    draws: Float[np.ndarray, "chains draws d"]
    num_gradients: int
    """Gradients of the log density per chain, on all rows, of the draws."""

    def r_hat(self, values: Float[np.ndarray, "chains draws k"]) -> Float[np.ndarray, " k"]:
        """Split R-hat of functions of the draws."""
        half = values.shape[1] // 2
        split = np.concatenate([values[:, :half], values[:, half : 2 * half]])
        within = np.mean(np.var(split, axis=1, ddof=1), axis=0)
        between = np.var(np.mean(split, axis=1), axis=0, ddof=1)
        return np.sqrt((half - 1) / half + between / within)


def nuts_chains(
    target: Target,
    *,
    num_chains: int = 8,
    num_warmup: int = 1000,
    num_draws: int = 1000,
    thin: int = 1,
    largest_doublings: int = 8,
    seed: int = 0,
) -> ReferenceChains:
    """NUTS with BlackJAX's window adaptation, each chain from its own draw of the prior."""
    blackjax: Any = importlib.import_module("blackjax")
    start_key, run_key = jax.random.split(jax.random.key(seed))
    starts = target.flatten(target.model.draw_start(start_key, num_chains))

    def log_density(position: Array) -> Array:
        return target.log_density(position)

    options = {"max_num_doublings": largest_doublings}

    def chain(key: Array, start: Array) -> tuple[Array, Array]:
        warm_key, draw_key = jax.random.split(key)
        warmup = blackjax.window_adaptation(
            blackjax.nuts, log_density, target_acceptance_rate=0.8, **options
        )
        (state, parameters), _ = warmup.run(warm_key, start, num_warmup)
        kernel = blackjax.nuts(log_density, **{**parameters, **options})

        def draw(state: Any, key: Array) -> tuple[Any, tuple[Array, Array]]:
            def one(state: Any, key: Array) -> tuple[Any, Array]:
                state, info = kernel.step(key, state)
                return state, info.num_integration_steps

            state, used = jax.lax.scan(one, state, jax.random.split(key, thin))
            return state, (state.position, jnp.sum(used))

        keys = jax.random.split(draw_key, num_draws)
        _, (positions, used) = jax.lax.scan(draw, state, keys)
        return positions, jnp.sum(used)

    run = jax.jit(jax.vmap(chain))
    positions, used = run(jax.random.split(run_key, num_chains), starts)
    return ReferenceChains(np.asarray(positions), int(np.mean(np.asarray(used))))
