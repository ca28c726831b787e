"""Further runs of the sampler: replicates from other starts, and longer chains."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from nvgd._support.compilation import compiled
from nvgd._support.errors import InputError
from nvgd.exact.corrections import Corrections, CorrectionState
from nvgd.flow.coordinates.adaptive import Adaptive
from nvgd.posterior.reruns import AbstractRerun
from nvgd.running.starts import AbstractStart
from nvgd.targets.target import Target

# Searches for a driver before the chains start.
NUM_SEARCHES = 10


class SampleCall(AbstractRerun):
    """A call of `sample` that can be repeated.

    Arguments:
        target: the density to sample.
        repeat: repeats the call with another seed and returns the particles.
        initial, seed: the arguments of the original call.
    """

    def __init__(
        self, target: Target, repeat: Callable[[int], np.ndarray], initial: Any, seed: int
    ):
        self._target, self._repeat = target, repeat
        self._initial, self._seed = initial, seed

    def replicate(self, number):
        """Repeat the call with a seed far from `seed + 1`, `seed + 2`, …, which users may use."""
        if not (self._initial is None or isinstance(self._initial, AbstractStart | str)):
            raise InputError(
                "num_replicates needs other starting particles, and this run started from "
                "particles of your own: sample with initial= one of the ways to draw them, such as "
                "Jittered(position)."
            )
        return self._repeat((self._seed + 1_000_003 * number) % 2**32)

    def continue_chains(self, particles, num_draws, num_steps, seed):
        """Run the corrections of `NVGD()`, started from copies of the particles."""
        target = self._target
        if target.is_noisy:
            raise InputError(
                "further draws are accepted or rejected by their log density, which minibatches "
                "only estimate: leave batch_size out, or sample again with another seed."
            )
        start_key, key = jax.random.split(jax.random.fold_in(jax.random.key(self._seed), seed))
        # At least as many chains as particles: coordinates and step size are fitted to the chains.
        num_chains = max(num_draws, len(particles))
        order = jax.random.permutation(start_key, len(particles))
        starts = particles[order[jnp.arange(num_chains) % len(particles)]]
        coordinates = Adaptive()
        memory = _searched(coordinates, particles, target.on_all_data(particles).masked().scores)
        stage = Corrections(coordinates, memory, 0, num_steps)
        state = stage.init(target, starts, key=key)
        chains = _chains(stage, target, state, jnp.array(num_steps), key)
        return chains.particles[:num_draws]


@compiled
def _searched(
    coordinates: Adaptive, particles: Float[Array, "n d"], scores: Float[Array, "n d"]
) -> Any:
    """The state of the coordinates after `NUM_SEARCHES` searches for a driver."""

    def search(i: Array, memory: Any) -> Any:
        return coordinates.fit(particles, scores, memory, step=jnp.zeros_like(i))[1]

    return jax.lax.fori_loop(0, NUM_SEARCHES, search, coordinates.init(particles))


@compiled
def _chains(
    stage: Corrections,
    target: Target,
    state: CorrectionState,
    num_steps: Int[Array, ""],
    key: PRNGKeyArray,
) -> CorrectionState:
    return jax.lax.fori_loop(
        0, num_steps, lambda _, state: stage.step(target, state, key=key)[0], state
    )
