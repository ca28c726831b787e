"""Further draws from a posterior: chains that start at its particles."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from nvgd._support.compilation import compiled
from nvgd._support.errors import InputError
from nvgd.exact.corrections import Corrections, CorrectionState
from nvgd.flow.coordinates.adaptive import Adaptive
from nvgd.targets.target import Target

# Searches for a driver among the particles before chains start.
NUM_SEARCHES = 10


def further_draws(
    target: Target, particles: Float[Array, "n d"], num_draws: int, num_steps: int, seed: int
) -> Float[Array, "m d"]:
    """Final states of corrected chains, as `Posterior.sample` describes them."""
    if target.is_noisy:
        raise InputError(
            "further draws are accepted or rejected by their log density, which minibatches only "
            "estimate: leave batch_size out, or sample again with another seed."
        )
    start_key, key = jax.random.split(jax.random.key(seed))
    # At least as many chains as particles: coordinates and step size are fitted to the chains.
    num_chains = max(num_draws, len(particles))
    order = jax.random.permutation(start_key, len(particles))
    starts = particles[order[jnp.arange(num_chains) % len(particles)]]
    coordinates = Adaptive()
    memory = _searched(coordinates, particles, target.on_all_data(particles).masked().scores)
    stage = Corrections(coordinates, memory, 0, num_steps)
    state = stage.init(target, starts, key=key)
    return _stepped(stage, target, state, jnp.array(num_steps), key).particles[:num_draws]


@compiled
def _searched(
    coordinates: Adaptive, particles: Float[Array, "n d"], scores: Float[Array, "n d"]
) -> Any:
    """The state of the coordinates after `NUM_SEARCHES` searches for a driver."""

    def search(i: Array, memory: Any) -> Any:
        del i
        return coordinates.search(particles, scores, memory)

    return jax.lax.fori_loop(0, NUM_SEARCHES, search, coordinates.init(particles))


@compiled
def _stepped(
    stage: Corrections,
    target: Target,
    state: CorrectionState,
    num_steps: Int[Array, ""],
    key: PRNGKeyArray,
) -> CorrectionState:
    return jax.lax.fori_loop(
        0, num_steps, lambda _, state: stage.step(target, state, key=key)[0], state
    )
