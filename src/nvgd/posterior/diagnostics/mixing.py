"""Mixing of many chains: R-hat of values, and of indicators of the tails."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtri

# The tails are the lowest and the highest values of all chains, this share each.
TAIL = 0.02
# Largest R-hat of values, and of the indicators of the tails, which are noisier.
LARGEST_BULK, LARGEST_TAIL = 1.08, 1.2
# Most states per chain that are ranked.
MOST_RANKED = 32
# Fewest states per chain that tell whether it stays in a tail.
FEWEST_STATES = 8


class Mixing(NamedTuple):
    """R-hat of every column, for the values and for the indicators of both tails."""

    bulk: Float[np.ndarray, " c"]
    lower_tail: Float[np.ndarray, " c"]
    upper_tail: Float[np.ndarray, " c"]
    num_outside: Float[np.ndarray, " c"]
    """Number of chains that never leave one of the tails."""

    @property
    def excess(self) -> Float[np.ndarray, " c"]:
        """The largest of a column's measures, in units in which 1 is too large."""
        tails = np.maximum(self.lower_tail, self.upper_tail)
        r_hats = (self.bulk - 1) / (LARGEST_BULK - 1), (tails - 1) / (LARGEST_TAIL - 1)
        return np.maximum(np.maximum(*r_hats), self.num_outside)

    @property
    def is_mixed(self) -> bool:
        """Whether no column exceeds what is allowed."""
        return bool(np.all(self.excess < 1))


def measure_mixing(values: Float[np.ndarray, "n k c"]) -> Mixing:
    """R-hat of n chains with k states (Vehtari et al., 2021), computed from ranks.

    R-hat compares the variance between the means of the chains with that within chains; it is 1 if
    all chains have the same distribution. One of 256 chains that never leaves a tail hardly changes
    the R-hat of the values. It does change that of the indicator "among the lowest 2 % of all
    values": the few that are there should come from many chains. And it is counted: with
    `FEWEST_STATES` states or more, a chain that mixes does not stay in one tail.
    """
    length = values.shape[1]
    stride = -(-length // MOST_RANKED)
    values = np.asarray(values[:, ::-1][:, ::stride][:, ::-1], np.float64)
    num_chains, length, num_columns = values.shape
    if length < 2 or num_chains < 2:
        nothing = np.full(num_columns, np.inf)
        return Mixing(nothing, nothing, nothing, np.zeros(num_columns))
    found = []
    for column in np.moveaxis(values, 2, 0):
        ranks = _ranks(column)
        indicators = ranks < TAIL, ranks > 1 - TAIL
        outside = [each.all(axis=1).sum() for each in indicators if length >= FEWEST_STATES]
        found.append([r_hat(ndtri(ranks)), *(r_hat(each) for each in indicators), sum(outside)])
    return Mixing(*np.array(found).T)


def r_hat(values: Float[np.ndarray, "n k"] | Bool[np.ndarray, "n k"]) -> float:
    """√((W(k − 1)/k + B)/W) for variances W within chains and B between their means."""
    values = np.asarray(values, np.float64)
    length = values.shape[1]
    within = float(values.var(axis=1, ddof=1).mean())
    between = float(values.mean(axis=1).var(ddof=1))
    if within <= 0:
        return 1.0 if between <= 0 else np.inf
    return float(np.sqrt((length - 1) / length + between / within))


def _ranks(values: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Ranks among all values as numbers in (0, 1); equal values share their mean rank."""
    flat = values.ravel()
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ends = np.r_[starts[1:], len(flat)]
    shared = np.repeat((starts + ends - 1) / 2, ends - starts)
    ranks = np.empty(len(flat))
    ranks[order] = (shared + 0.5) / len(flat)
    return ranks.reshape(values.shape)
