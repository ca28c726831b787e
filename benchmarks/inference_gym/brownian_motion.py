"""Exact moments of the Brownian motion with unknown scales.

The gym ships moments from 20,000 draws of Stan, which missed part of the funnel at small scales of
the observations: they are off by up to 0.31 standard deviations. Given both scales, the
positions are jointly normal, so that two-dimensional quadrature over the scales is exact.
"""

import dataclasses

import numpy as np

# Of the logarithms of both scales. Beyond, there is less than 10⁻⁸ of the posterior.
LEAST, MOST, NUM_NODES = -12.0, 2.0, 201


@dataclasses.dataclass(frozen=True)
class Moments:
    """Moments of the constrained scalars, in the order of the gym, and of their squares."""

    mean: np.ndarray
    sd: np.ndarray
    mean_square: np.ndarray
    sd_square: np.ndarray


def moments(observed: np.ndarray) -> Moments:
    """Moments of innovation scale, positions and observation scale, given observations.

    Both scales have the prior LogNormal(0, 2); positions xₜ ~ N(xₜ₋₁, innovation²) with x₋₁ = 0;
    observations are N(xₜ, observation²), or missing where they are NaN.
    """
    is_seen = ~np.isnan(observed)
    times = np.arange(1, len(observed) + 1)
    walk = np.minimum.outer(times, times).astype(float)
    eigenvalues, vectors = np.linalg.eigh(walk[np.ix_(is_seen, is_seen)])
    rotated = vectors.T @ observed[is_seen]
    # Of the positions on the rotated observations; both are known up to the two scales.
    gains = walk[:, is_seen] @ vectors

    nodes = np.linspace(LEAST, MOST, NUM_NODES)
    innovation, observation = np.meshgrid(np.exp(nodes), np.exp(nodes), indexing="ij")
    innovation, observation = innovation.ravel()[:, None], observation.ravel()[:, None]
    variances = innovation**2 * eigenvalues + observation**2
    log_weights = -0.5 * np.sum(np.log(variances) + rotated**2 / variances, axis=1)
    # The prior of the logarithms is N(0, 2²).
    log_weights -= (np.log(innovation[:, 0]) ** 2 + np.log(observation[:, 0]) ** 2) / 8
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()

    shares = innovation**2 / variances
    mean = (shares * rotated) @ gains.T
    variance = innovation**2 * np.diag(walk) - (innovation**2 * shares) @ (gains**2).T
    square = mean**2 + variance
    fourth = mean**4 + 6 * mean**2 * variance + 3 * variance**2

    def powers(power: int, of_positions: np.ndarray) -> np.ndarray:
        return weights @ np.hstack([innovation**power, of_positions, observation**power])

    first, second, last = powers(1, mean), powers(2, square), powers(4, fourth)
    return Moments(first, np.sqrt(second - first**2), second, np.sqrt(last - second**2))
