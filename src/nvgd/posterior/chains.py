"""The draws of a run's corrections: states of many Markov chains."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Limits of thinning: fewest and most draws per chain, and most draws of all chains.
FEWEST_DRAWS = 8
MOST_DRAWS = 8192


class Chains(NamedTuple):
    """States of n chains at k times, with their log densities and scores."""

    positions: Float[np.ndarray, "n k d"]
    log_densities: Float[np.ndarray, "n k"]
    scores: Float[np.ndarray, "n k d"]

    def every(self, stride: int) -> "Chains":
        """Every `stride`-th state, the last one included."""
        return Chains(*(values[:, ::-1][:, ::stride][:, ::-1] for values in self))

    def thinned(self) -> "Chains":
        """Thin the chains so that successive states are nearly independent in most coordinates.

        Errors of means account for the correlation that remains in slow coordinates. Keeps at
        least `FEWEST_DRAWS` per chain, if the chains are that long, and at most `MOST_DRAWS`.
        """
        num_chains, length, _ = self.positions.shape
        columns = np.concatenate([self.positions, self.log_densities[:, :, None]], axis=2)
        time = float(np.median(autocorrelation_times(columns)))
        wanted = np.clip(round(length / time), min(FEWEST_DRAWS, length), length)
        wanted = max(min(int(wanted), MOST_DRAWS // num_chains), 1)
        return self.every(-(-length // wanted))


def autocorrelation_times(values: Float[np.ndarray, "n k c"]) -> Float[np.ndarray, " c"]:
    """Integrated autocorrelation times of the columns, in states, between 1 and k.

    The variance of a mean over k states is σ²τ/k, where τ is the autocorrelation time. With many
    chains, it is estimated by the variance between their means.
    """
    values = np.asarray(values, np.float64)
    length = values.shape[1]
    total = np.maximum(values.var(axis=(0, 1)), 1e-300)
    return np.clip(length * values.mean(axis=1).var(axis=0, ddof=1) / total, 1.0, length)
