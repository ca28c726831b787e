"""What a posterior asks of the run that made it; `nvgd.running` answers."""

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Array, Float


class AbstractRerun(ABC):
    """A way to run the sampler again."""

    @abstractmethod
    def replicate(self, number: int) -> Float[np.ndarray, "n d"]:
        """Particles of an independent run from other starting particles; `number` tells them apart.

        InputError if the run started from particles of the user's own.
        """

    @abstractmethod
    def continue_chains(
        self, particles: Float[Array, "n d"], num_draws: int, num_steps: int, seed: int
    ) -> Float[Array, "m d"]:
        """Ends of chains that start at the particles and keep the target exactly."""
