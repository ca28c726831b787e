"""Are ranks uniform? Simultaneous tests and bands for their distribution function.

Among N uniform ranks in {0, …, L}, the number below i is binomial with probability i/(L + 1). The
test statistic is the smallest two-sided binomial p-value over all i (Säilynoja, Bürkner & Vehtari,
2022). Its distribution is computed exactly, since the counts form a Markov chain in i.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

# Number of candidates for the pointwise level of a band.
NUM_LEVELS = 60


def uniformity_p_values(ranks: Int[np.ndarray, "n k"], num_ranks: int) -> Float[np.ndarray, " k"]:
    """The p-value of the hypothesis that the ranks of a column are uniform, for each column.

    Arguments:
        ranks: whole numbers from 0 to `num_ranks` − 1; rows are independent.
        num_ranks: L + 1.
    """
    n = len(ranks)
    points = np.arange(1, num_ranks)
    counts = np.stack([np.sum(ranks < point, axis=0) for point in points])
    pointwise = _two_sided(n, num_ranks)
    smallest = np.take_along_axis(pointwise, counts, axis=1).min(axis=0)
    # Slightly more, so that the observed counts themselves are outside despite rounding.
    levels, places = np.unique(smallest, return_inverse=True)
    return (1 - _coverage(pointwise, levels * (1 + 1e-9)))[places]


def uniform_band(
    num_simulations: int, num_ranks: int, level: float
) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]:
    """Bounds that uniform ranks' distribution function keeps everywhere with probability `level`.

    The bounds are for the shares of ranks below 1, …, `num_ranks` − 1.
    """
    pointwise = _two_sided(num_simulations, num_ranks)
    candidates = np.geomspace((1 - level) / (4 * num_ranks), 1 - level, NUM_LEVELS)
    coverage = _coverage(pointwise, candidates)
    chosen = candidates[np.flatnonzero(coverage >= level)[-1]]
    is_inside = pointwise > chosen
    low = is_inside.argmax(axis=1)
    high = num_simulations - is_inside[:, ::-1].argmax(axis=1)
    return low / num_simulations, high / num_simulations


def holm(p_values: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """p-values adjusted for their number, after Holm (1979)."""
    order = np.argsort(p_values)
    factors = len(p_values) - np.arange(len(p_values))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p_values[order]), 1.0)
    return adjusted


def _two_sided(n: int, num_ranks: int) -> Float[np.ndarray, "p c"]:
    """2 min(P(R ≤ r), P(R ≥ r)), at most 1, for each point and each count r = 0, …, n."""
    binomial = _binomial(n)
    rows = []
    for point in range(1, num_ranks):
        chances = binomial(point / num_ranks)[n]
        below, above = np.cumsum(chances), np.cumsum(chances[::-1])[::-1]
        rows.append(np.minimum(2 * np.minimum(below, above), 1.0))
    return np.stack(rows)


def _coverage(
    pointwise: Float[np.ndarray, "p c"], levels: Float[np.ndarray, " l"]
) -> Float[np.ndarray, " l"]:
    """Probability that all pointwise p-values exceed a level, if ranks are uniform."""
    num_points, n = pointwise.shape[0], pointwise.shape[1] - 1
    binomial = _binomial(n)
    counts = np.arange(n + 1)
    # Probabilities of the number of ranks below the point, within the bounds so far.
    chances = np.zeros((len(levels), n + 1))
    chances[:, 0] = 1.0
    for point in range(num_points):
        # Of the ranks that are not below this point, the share that is below the next one.
        moves = binomial(1 / (num_points + 1 - point))
        added = counts[None, :] - counts[:, None]
        moves = np.where(added >= 0, np.take_along_axis(moves[::-1], np.abs(added), axis=1), 0.0)
        chances = (chances @ moves) * (pointwise[point] > levels[:, None])
    return np.minimum(chances.sum(axis=1), 1.0)


def _binomial(n: int) -> Callable[[float], Float[np.ndarray, "c c"]]:
    """A function of p: the binomial probabilities of r = 0, …, n for each size m = 0, …, n."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    size, count = np.arange(n + 1)[:, None], np.arange(n + 1)[None, :]
    is_possible = count <= size
    rest = np.where(is_possible, size - count, 0)
    coefficients = np.where(is_possible, logs[size] - logs[count] - logs[rest], -np.inf)

    def probabilities(p: float) -> Float[np.ndarray, "c c"]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.exp(coefficients + count * np.log(p) + rest * np.log1p(-p))

    return probabilities
