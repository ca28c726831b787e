"""The Stein discrepancy of any particles, by a witness that has not seen those it is tested on."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from nvgd.posterior.diagnostics.measures import NUM_FOLDS, StandardisedSample

# Random features, at most, and particles for each of them.
MAX_FEATURES = 30
PARTICLES_PER_FEATURE = 10


class HeldOut(NamedTuple):
    """An estimate of ½E|∇log p − ∇log q|² from below, in standardised coordinates."""

    value: float
    error: float
    dim: int

    @property
    def significance(self) -> float:
        """Standard errors above zero; an exact sample's lies about zero or below."""
        return self.value / max(self.error, 1e-12)


class _Features(NamedTuple):
    """φ(u) = (1, tanh(Ωu + b), and u where there are particles enough), and its derivatives."""

    directions: Float[np.ndarray, "m d"]
    offsets: Float[np.ndarray, " m"]
    is_linear: bool
    """Whether every output sees all of u, or its own coordinate only."""

    def __call__(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """φ, shape (n, k), and the slopes tanh′ of the waves, shape (n, m)."""
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

    The witness is linear in fixed features, fⱼ = aⱼ·φ(u), so that on all folds but one the maximum
    of E[f·s + div f − ½|f|²] solves a ridge system: (E[φφᵀ] + λ)aⱼ = E[φsⱼ + ∂ⱼφ]. It is tested on
    the fold that was left out; five folds give a term for every particle. No network, no tuning,
    and the same for every method, so that values can be compared between them.
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
    """Coefficients of the shared features, and of each output's own coordinate."""
    num, dim = positions.shape
    shared, slopes = features(positions)
    wanted = shared.T @ scores / num + features.derivatives(slopes.mean(axis=0))
    gram = shared.T @ shared / num
    size = len(gram)
    ridge = (size + 1) / num
    if features.is_linear:
        return np.linalg.solve(gram + ridge * np.eye(size), wanted), np.zeros(dim)
    # One bordered system for each output: its own coordinate is a feature that others lack.
    systems = np.zeros((dim, size + 1, size + 1))
    systems[:, :size, :size] = gram
    systems[:, :size, size] = systems[:, size, :size] = (shared.T @ positions / num).T
    systems[:, size, size] = np.mean(positions**2, axis=0)
    own_wanted = np.mean(positions * scores, axis=0) + 1.0
    right = np.concatenate([wanted.T, own_wanted[:, None]], axis=1)
    solved = np.linalg.solve(systems + ridge * np.eye(size + 1), right[..., None])[..., 0]
    return solved[:, :size].T, solved[:, size]
