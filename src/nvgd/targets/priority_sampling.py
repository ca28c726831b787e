"""A weighted subsample of rows, drawn in proportion to their remainders, in one pass.

A priority sample (Duffield, Lund and Thorup, "Priority sampling for estimation of arbitrary subset
sums", 2007): every row has the priority size/uniform, and the rows of highest priority are kept.
The order of the rows does not matter. Sizes are measured at some positions, and the error of the
sample at others: where rows were chosen, they agree better than elsewhere.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PyTree

from nvgd.targets.corrected_rows import Row

# Every row counts at least as if its remainder had this share of the mean size.
LEAST_SHARE = 0.1
# A sample is large enough if its error in nats is below TOLERANCE, and twice as far from the
# anchor, where chains should not be led astray, below TOLERANCE_FAR.
TOLERANCE, TOLERANCE_FAR = 0.1, 1.0
# Calibration leaves at least this share of every weight.
LEAST_SHARE_LEFT = 0.2
# Singular values below this share of the largest are left out.
SMALLEST_SHARE = 1e-3


class Candidates:
    """The rows of highest priority so far.

    Remainders are given at positions near the anchor, then at as many that are twice as far away.

    Arguments:
        most: number of rows to keep.
    """

    def __init__(self, most: int, rng: np.random.Generator):
        self._most, self._rng = most, rng
        self._floor: float | None = None
        self._threshold = 0.0
        self._parts: list[Any] = []
        self._num_waiting = 0

    def add(
        self,
        rows: PyTree,
        at_anchor: Float[np.ndarray, " m"],
        deciding: Float[np.ndarray, "k m"],
        judging: Float[np.ndarray, "k m"],
    ) -> None:
        """Add a block of rows.

        Arguments:
            at_anchor: log likelihoods at the anchor.
            deciding: remainders that decide how probable it is that a row is taken.
            judging: remainders, at other positions, that tell the error of the sample.
        """
        sizes = _halves(deciding).std(axis=1).max(axis=0)
        if self._floor is None:
            self._floor = LEAST_SHARE * float(sizes.mean()) + 1e-30
        sizes = sizes + self._floor
        priorities = sizes / (1 - self._rng.random(len(sizes)))
        own = (deciding.T, judging.T, sizes, priorities)
        block = (jax.tree.map(np.asarray, rows), at_anchor, *own)
        is_kept = priorities > self._threshold
        self._parts.append(jax.tree.map(lambda leaf: leaf[is_kept], block))
        self._num_waiting += int(is_kept.sum())
        # Not after every block: sorting all of them each time would take most of a pass.
        if self._num_waiting > self._most:
            self._sort()

    def _sort(self) -> None:
        """Keep the rows of highest priority, in this order."""
        joined = jax.tree.map(lambda *parts: np.concatenate(parts), *self._parts)
        # One more than needed: its priority is the threshold.
        best = np.argsort(-joined[-1], kind="stable")[: self._most + 1]
        self._parts, self._num_waiting = [jax.tree.map(lambda leaf: leaf[best], joined)], 0
        if len(best) > self._most:
            self._threshold = float(joined[-1][best[-1]])

    def chosen(
        self,
        totals: Float[np.ndarray, " k"],
        judged: Float[np.ndarray, " k"],
        smallest: int,
        num_seen: int,
    ) -> tuple[Row, float]:
        """The smallest sample whose error is tolerable, or the largest; and its error in nats.

        Arguments:
            totals, judged: sums over all rows of the remainders that decide, and of those that
                judge.
            smallest: fewest rows to take.
            num_seen: number of rows that were added.
        """
        self._sort()
        rows, at_anchor, deciding, judging, sizes, priorities = self._parts[0]
        has_all = len(sizes) == num_seen
        size = smallest
        while True:
            size = min(size, len(sizes) if has_all else len(sizes) - 1)
            threshold = priorities[size] if size < len(sizes) else 0.0
            plain = np.maximum(1.0, threshold / sizes[:size])
            both = plain, calibrated(plain, deciding[:size], totals)
            errors = [_halves(weights @ judging[:size] - judged).std(axis=1) for weights in both]
            best = int(np.all(errors[1] <= errors[0]))
            weights, (near, far) = both[best], errors[best]
            is_good = near < TOLERANCE and far < TOLERANCE_FAR
            if is_good or size >= len(sizes) - (not has_all):
                rows = jax.tree.map(lambda leaf, size=size: leaf[:size], rows)
                return Row(rows, weights, at_anchor[:size]), float(near)
            size *= 2


def calibrated(
    weights: Float[np.ndarray, " m"],
    values: Float[np.ndarray, "m k"],
    totals: Float[np.ndarray, " k"],
) -> Float[np.ndarray, " m"]:
    """Weights near the given ones with which the rows' values add up to these totals.

    The weights wᵢ + (wᵢ − 1)xᵢ·λ of the regression estimator (Deville and Särndal, "Calibration
    estimators in survey sampling", 1992). What the remainders of rows have in common is then
    represented without error. Rows of weight one, which stand for themselves, keep it, and no
    weight falls below LEAST_SHARE_LEFT of what it was: if one would, totals are only approached.

    Arguments:
        values: xᵢ, the values of every row.
        totals: sums over all rows.
    """
    free = weights - 1
    scales = np.sqrt(free @ values**2) + 1e-30
    roots = np.sqrt(free)[:, None] * values / scales
    short = (totals - weights @ values) / scales
    # Directions in which the rows hardly differ are left out: there, rounding would decide.
    axes, sizes, coefficients = np.linalg.svd(roots, full_matrices=False)
    is_kept = sizes > SMALLEST_SHARE * max(sizes[0], 1e-30)
    shares = (coefficients[is_kept] @ short) / sizes[is_kept]
    changes = np.sqrt(free) * (axes[:, is_kept] @ shares)
    falls = max(float(np.max(-changes / weights)), 1e-30)
    return weights + min(1.0, (1 - LEAST_SHARE_LEFT) / falls) * changes


def _halves(remainders: Float[np.ndarray, "k ..."]) -> Float[np.ndarray, "2 h ..."]:
    """The remainders near the anchor, and those farther away."""
    return remainders.reshape(2, -1, *remainders.shape[1:])
