"""Posterior means of functions."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from nvgd._support.errors import InputError
from nvgd.posterior.stein_estimates import stein_expectation, total_errors


class Expectation(NamedTuple):
    """A posterior mean, its standard error (NaN without scores), both in the function's shape."""

    mean: np.ndarray
    error: np.ndarray

    def __repr__(self) -> str:
        mean, error = (np.array2string(part, precision=4) for part in self)
        return f"{mean} ± {error}"


def expectation(
    function: Callable[[dict[str, Array]], Any],
    draws: Mapping[str, Array],
    positions: Float[np.ndarray, "m d"],
    scores: Float[np.ndarray, "m d"] | None,
    groups: Int[np.ndarray, " m"],
    density_error: float = 0.0,
) -> Expectation:
    """See `Posterior.expectation`.

    Arguments:
        draws: draws by name, with one leading axis.
        positions, scores: the same draws in unconstrained space, and their scores if known.
        groups: equal numbers for draws that may depend on each other.
        density_error: error of the log density that the draws represent, in nats.
    """
    try:
        values = np.asarray(jax.vmap(function)(dict(draws)))
    except (TypeError, KeyError, ValueError) as error:
        raise InputError(
            "function must map a dictionary of one draw's values to a number or array, written "
            f"with jax.numpy; the names are {', '.join(draws)}. It raised {error!r}."
        ) from error
    columns = values.reshape(len(values), -1).astype(np.float64)
    if not np.isfinite(columns).all():
        raise InputError(
            f"function must return finite numbers, got NaN or infinity at "
            f"{int((~np.isfinite(columns)).any(axis=1).sum())} of {len(columns)} draws."
        )
    if scores is None:
        mean, error = columns.mean(axis=0), np.full(columns.shape[1], np.nan)
    else:
        mean, error, _ = stein_expectation(columns, positions, scores, groups)
        error = total_errors(error, mean, columns.std(axis=0), density_error, scores.dtype)
    return Expectation(mean.reshape(values.shape[1:]), error.reshape(values.shape[1:]))
