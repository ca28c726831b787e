"""Held-out Stein discrepancy: the witness is tested on particles it was not fitted to."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from nvgd.posterior.diagnostics.measures import NUM_FOLDS, StandardisedSample

# Largest number of random features, and number of particles per feature.
MAX_FEATURES = 30
PARTICLES_PER_FEATURE = 10


class HeldOut(NamedTuple):
    """Estimated lower bound of ½E|∇log p − ∇log q|², in standardised coordinates."""

    value: float
    error: float
    dim: int

    @property
    def significance(self) -> float:
        """Value in units of its standard error; about zero or below for an exact sample."""
        return self.value / max(self.error, 1e-12)


class _Features(NamedTuple):
    """Features φ(u) = (1, tanh(Ωu + b)), followed by u if `is_linear`, and their derivatives."""

    directions: Float[np.ndarray, "m d"]
    """Ω."""
    offsets: Float[np.ndarray, " m"]
    """b."""
    is_linear: bool
    """Whether every output of the witness is linear in all of u, or in its own coordinate only;
    true if there are enough particles."""

    def __call__(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """φ, shape (n, k), and the slopes tanh′ of the random features, shape (n, m)."""
        waves = np.tanh(positions @ self.directions.T + self.offsets)
        linear = [positions] if self.is_linear else []
        values = np.concatenate([np.ones((len(positions), 1)), waves, *linear], axis=1)
        return values, 1 - waves**2

    def derivatives(self, slopes: np.ndarray) -> np.ndarray:
        """∂φₖ/∂uⱼ, shape (k, d), from the slopes at one position or their mean over many."""
        dim = self.directions.shape[1]
        linear = [np.eye(dim)] if self.is_linear else []
        return np.concatenate([np.zeros((1, dim)), slopes[:, None] * self.directions, *linear])


def held_out_discrepancy(sample: StandardisedSample) -> HeldOut:
    """Regularised Stein discrepancy on held-out particles, with its standard error.

    The witness is linear in fixed features, fⱼ = aⱼ·φ(u). The maximum of E[f·s + div f − ½|f|²]
    over all folds but one then solves a ridge system, (E[φφᵀ] + λ)aⱼ = E[φsⱼ + ∂ⱼφ]. The witness
    is tested on the remaining fold; five folds give one term per particle. There is no network and
    no tuning, and the witness is the same for every method, so values can be compared between
    methods.
    """
    num, dim = sample.positions.shape
    num_folds = min(NUM_FOLDS, num)
    rng = np.random.default_rng(0)
    num_features = min(MAX_FEATURES, num // PARTICLES_PER_FEATURE)
    features = _Features(
        rng.normal(size=(num_features, dim)) / math.sqrt(dim),
        rng.uniform(-1.0, 1.0, num_features),
        is_linear=num >= 2 * PARTICLES_PER_FEATURE * dim,
    )
    terms = np.empty(num)
    for fold in range(num_folds):
        held = np.arange(num) % num_folds == fold
        coefficients, own = _fit(features, sample.positions[~held], sample.scores[~held])
        positions, scores = sample.positions[held], sample.scores[held]
        basis, slopes = features(positions)
        values = basis @ coefficients + own * positions
        waves = slice(1, 1 + num_features)
        divergences = slopes @ np.sum(features.directions * coefficients[waves], axis=1)
        divergences = divergences + own.sum() + np.trace(coefficients[1 + num_features :])
        terms[held] = np.sum(values * scores - 0.5 * values**2, axis=1) + divergences
    return HeldOut(float(terms.mean()), float(terms.std(ddof=1) / math.sqrt(num)), dim)


def _fit(
    features: _Features, positions: Float[np.ndarray, "n d"], scores: Float[np.ndarray, "n d"]
) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, " d"]]:
    """Coefficients of the shared features, and of the own coordinate of each output."""
    num, dim = positions.shape
    shared, slopes = features(positions)
    wanted = shared.T @ scores / num + features.derivatives(slopes.mean(axis=0))
    gram = shared.T @ shared / num
    size = len(gram)
    ridge = (size + 1) / num
    if features.is_linear:
        return np.linalg.solve(gram + ridge * np.eye(size), wanted), np.zeros(dim)
    # One bordered system per output, because its own coordinate is an additional feature.
    systems = np.zeros((dim, size + 1, size + 1))
    systems[:, :size, :size] = gram
    systems[:, :size, size] = systems[:, size, :size] = (shared.T @ positions / num).T
    systems[:, size, size] = np.mean(positions**2, axis=0)
    own_wanted = np.mean(positions * scores, axis=0) + 1.0
    right = np.concatenate([wanted.T, own_wanted[:, None]], axis=1)
    solved = np.linalg.solve(systems + ridge * np.eye(size + 1), right[..., None])[..., 0]
    return solved[:, :size].T, solved[:, size]
