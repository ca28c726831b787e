"""Checks of the rows that a pass over all data makes."""

import warnings

import jax
import numpy as np
from jaxtyping import Float, PyTree

from nvgd._support.errors import DataOrderWarning, InputError

# Standard errors by which the variance between batches may exceed that of shuffled rows.
LARGEST_DEVIATION = 8.0


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


def check_order(slopes: Float[np.ndarray, "m k"], batch_size: int) -> None:
    """Warn of a stream whose batches differ more than batches of shuffled rows would.

    Compares the variance of the batches' means with that within batches, as the F-test does.

    Arguments:
        slopes: slopes of all rows towards some probes, in the order of the stream.
    """
    num_batches = len(slopes) // batch_size
    if num_batches < 2 or batch_size < 2:
        return
    batches = slopes[: num_batches * batch_size].reshape(num_batches, batch_size, -1)
    within = batches.var(axis=1, ddof=1).mean(axis=0)
    between = batch_size * batches.mean(axis=1).var(axis=0, ddof=1)
    ratio = float(np.max(between / (within + 1e-30)))
    if ratio > 1.5 + LARGEST_DEVIATION * (2 / num_batches) ** 0.5:
        warnings.warn(
            DataOrderWarning(
                "the batches of this BatchStream differ from each other more than batches of "
                "shuffled rows do. Steps then follow the order of the data: shuffle the rows "
                "before they are cut into batches."
            ),
            stacklevel=2,
        )


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
