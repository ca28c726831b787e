"""The scalars of a posterior that a figure with few panels should show.

Parameters without axes come first: in a hierarchical model these are the scales and other
hyperparameters. The rest are ranked by how strongly they depend on those already chosen.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import rankdata

# Most scalars to compare with each other, and most draws to rank.
MAX_CANDIDATES = 300
MAX_DRAWS = 1000
# Largest share of panels for parameters without axes, if there are other parameters.
SHARE_OF_SCALARS = 2 / 3


def important(
    values: Float[np.ndarray, "m c"], is_scalar: Bool[np.ndarray, " c"], number: int
) -> list[int]:
    """Indices of at most `number` columns, the most important first; of few, all in their order.

    Arguments:
        values: one column per scalar, one row per draw.
        is_scalar: which columns are parameters without axes (`without_axes`).
        number: how many to choose.
    """
    if values.shape[1] <= number:
        return list(range(values.shape[1]))
    candidates = np.flatnonzero(np.isfinite(values).all(axis=0) & (np.ptp(values, axis=0) > 0))
    # A stable sort: parameters without axes first, otherwise in the model's order.
    order = np.argsort(~is_scalar[candidates], kind="stable")
    candidates = candidates[order][:MAX_CANDIDATES]
    if not len(candidates):
        return list(range(number))
    strength = dependence(values[:, candidates])
    flags = is_scalar[candidates]
    chosen = _strongest(strength, np.flatnonzero(flags), _num_scalars(flags, number))
    while len(chosen) < min(number, len(candidates)):
        left = np.setdiff1d(np.arange(len(candidates)), chosen)
        to_chosen = strength[left][:, chosen or left].max(axis=1)
        chosen.append(int(left[np.argmax(to_chosen)]))
    return [int(candidates[i]) for i in chosen]


def without_axes(draws: Mapping[str, Any]) -> Bool[np.ndarray, " c"]:
    """For every scalar in draws (chain, draw, …), whether it is a parameter without axes."""
    shapes = [np.shape(value)[2:] for value in draws.values()]
    return np.repeat([not shape for shape in shapes], [int(np.prod(shape)) for shape in shapes])


def strongest_pair(values: Float[np.ndarray, "m c"]) -> tuple[int, int]:
    """The two columns that depend most on each other; the first column alone gives (0, 0)."""
    if values.shape[1] == 1:
        return 0, 0
    strength = dependence(values)
    i, j = np.unravel_index(np.argmax(strength), strength.shape)
    return (int(i), int(j)) if i < j else (int(j), int(i))


def dependence(values: Float[np.ndarray, "m c"]) -> Float[np.ndarray, "c c"]:
    """Strength of the dependence of every pair of columns, between 0 and 1; 0 on the diagonal.

    The larger of |rank correlation| of the values and of one column's values with the other's
    distances from its median: the second sees a funnel, whose columns are uncorrelated.
    """
    values = values[:: -(-len(values) // MAX_DRAWS)]
    levels = _standardised_ranks(values)
    distances = _standardised_ranks(np.abs(values - np.median(values, axis=0)))
    across = np.abs(levels.T @ distances)
    found = np.maximum(np.abs(levels.T @ levels), np.maximum(across, across.T))
    np.fill_diagonal(found, 0.0)
    return found


def _standardised_ranks(values: Float[np.ndarray, "m c"]) -> Float[np.ndarray, "m c"]:
    """Ranks with mean 0 and sum of squares 1, so that products are rank correlations."""
    ranks = rankdata(values, axis=0)
    ranks -= ranks.mean(axis=0)
    return ranks / np.maximum(np.linalg.norm(ranks, axis=0), np.finfo(float).tiny)


def _num_scalars(is_scalar: Bool[np.ndarray, " c"], number: int) -> int:
    if np.all(is_scalar):
        return number
    return min(int(np.sum(is_scalar)), max(int(SHARE_OF_SCALARS * number), 1))


def _strongest(
    strength: Float[np.ndarray, "c c"], among: Int[np.ndarray, " k"], number: int
) -> list[int]:
    """The `number` candidates with the strongest dependence on any other."""
    ranked = among[np.argsort(-strength[among].max(axis=1), kind="stable")]
    return [int(i) for i in ranked[:number]]
