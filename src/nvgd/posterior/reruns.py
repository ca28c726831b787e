"""Interface by which a posterior runs its sampler again; `nvgd.running` implements it."""

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Array, Float


class AbstractRerun(ABC):
    """Runs the sampler that produced a posterior again."""

    @abstractmethod
    def replicate(self, number: int) -> Float[np.ndarray, "n d"]:
        """Particles of an independent run from other initial particles.

        Raises an `InputError` if the user gave the initial particles.

        Arguments:
            number: index of the replicate, which determines its random numbers.
        """

    @abstractmethod
    def continue_chains(
        self, particles: Float[Array, "n d"], num_draws: int, num_steps: int, seed: int
    ) -> Float[Array, "m d"]:
        """Final states of chains that start at the particles and leave the target invariant."""
