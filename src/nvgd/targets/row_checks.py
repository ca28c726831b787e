"""Checks of the rows that a pass over all data makes."""

import warnings
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PyTree

from nvgd._support.errors import DataOrderWarning, InputError

# Standard errors by which the variance between batches may exceed that of shuffled rows.
LARGEST_DEVIATION = 8.0
# The order of a stream is checked after so many batches, and at its end if there are not too few.
FIRST_CHECK, FEWEST_BATCHES = 64, 4
# Columns of each array that are compared.
MOST_COLUMNS = 16


def check_rows(values: Float[np.ndarray, " m"], num_before: int) -> None:
    """Refuse rows whose log likelihood is not finite.

    Arguments:
        values: log likelihoods of the rows of a block.
        num_before: number of rows in earlier blocks.
    """
    faulty = np.flatnonzero(~np.isfinite(values))
    if len(faulty):
        raise InputError(
            f"log_likelihood is {values[faulty[0]]} for data row {num_before + faulty[0]}, and not "
            f"finite for {len(faulty)} of the {len(values)} rows from row {num_before} on, in the "
            "middle of the particles: look for missing or impossible values there, and leave these "
            "rows out."
        )


class BatchOrder:
    """Whether the batches of a stream differ more than batches of shuffled rows would.

    Compares the variance of the batches' means with that within batches, as the F-test does, for
    some columns of every array. What the model is does not matter.
    """

    def __init__(self):
        self._num_batches, self._next_check = 0, FIRST_CHECK
        self._origin, self._sums = np.zeros(()), np.zeros((3, 1))

    def add(self, batch: PyTree) -> None:
        """Add the next batch, and check from time to time."""
        columns = np.concatenate([_some_columns(leaf) for leaf in jax.tree.leaves(batch)], axis=1)
        means, within = columns.mean(axis=0), columns.var(axis=0) / max(len(columns) - 1, 1)
        if not self._num_batches:
            # Means are compared less the first one, so that rounding does not matter.
            self._origin = means
        offsets = means - self._origin
        self._sums = self._sums + np.stack([offsets, offsets**2, within])
        self._num_batches += 1
        if self._num_batches == self._next_check:
            self._next_check *= 4
            self.check()

    def check(self) -> None:
        """Warn if the batches so far differ too much."""
        if self._num_batches < FEWEST_BATCHES:
            return
        mean, square, within = self._sums / self._num_batches
        between = (square - mean**2) * self._num_batches / (self._num_batches - 1)
        # Constant columns have nothing to compare; missing values are told of elsewhere.
        ratio = float(np.nanmax(between / (within + 1e-30), initial=0.0))
        if ratio > 1.5 + LARGEST_DEVIATION * (2 / self._num_batches) ** 0.5:
            warnings.warn(
                DataOrderWarning(
                    "the batches of this BatchStream differ from each other more than batches of "
                    "shuffled rows do. Steps then follow the order of the data: shuffle the rows "
                    "before they are cut into batches."
                ),
                stacklevel=2,
            )


def _some_columns(leaf: Any) -> Float[np.ndarray, "m k"]:
    """At most MOST_COLUMNS columns of an array, evenly spaced, in double precision."""
    rows = np.asarray(leaf)
    rows = rows.reshape(len(rows), -1)
    return rows[:, :: -(-rows.shape[1] // MOST_COLUMNS)].astype(np.float64)


def check_dependence(slopes: Float[np.ndarray, "m k"], rows: PyTree) -> None:
    """Refuse a likelihood that is the same for rows that differ, such as a sum over all rows.

    Arguments:
        slopes: slopes of these rows towards some probes.
    """
    differ = any(np.any(leaf != leaf[:1]) for leaf in jax.tree.leaves(rows))
    if differ and slopes.any() and not np.ptp(slopes, axis=0).any():
        raise InputError(
            "log_likelihood must be that of the one row it is given, but is the same for all of "
            f"the first {len(slopes)} rows, which differ: do not sum over the data in it."
        )


def check_number(num_seen: int, num_rows: int, batch_size: int) -> None:
    """Warn of a stream whose number of rows is not `num_rows`.

    Arguments:
        num_seen: rows in one pass; those of an incomplete last batch may be left out.
        num_rows: N, as given.
    """
    if abs(num_seen - num_rows) < batch_size:
        return
    warnings.warn(
        DataOrderWarning(
            f"one pass over this BatchStream has {num_seen} rows, but num_rows is {num_rows}: the "
            "posterior is that of num_rows rows; give the number of rows that all batches hold."
        ),
        stacklevel=2,
    )
