"""Climbs to a mode by L-BFGS: one on all data, or many at once."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from nvgd._support.errors import InputError

# Maps a position to the log density and score of all data.
Objective = Callable[[Float[Array, " d"]], tuple[Float[Array, ""], Float[Array, " d"]]]
# Maps positions to log densities and scores, in double precision.
Batch = Callable[[Float[np.ndarray, "n d"]], tuple[np.ndarray, np.ndarray]]

# Pairs of moves and changes of the score from which the curvature is estimated.
MEMORY = 8
# Armijo's condition: a step must gain this share of what the slope predicts, or is shortened.
LEAST_GAIN, SHORTER = 1e-4, 0.25
# A climb ends after MOST_SMALL successive steps that gain less than SMALL_GAIN nats. One small gain
# is not enough: with badly scaled coordinates, single steps may gain little.
MOST_SMALL, SMALL_GAIN = 4, 1e-3
# Where the log density is evaluated between two peaks, as shares of the way, and by how many nats
# it must fall there: chains cross lower barriers.
BETWEEN = np.arange(1, 10) / 10
BARRIER = 2.0


class ClimbPath(NamedTuple):
    """The path of an optimiser."""

    positions: list[np.ndarray]
    """One per iteration, from the start to the final position."""
    converged: bool

    @property
    def end(self) -> np.ndarray:
        """The final position."""
        return self.positions[-1]


def climb(objective: Objective, start: Float[Array, " d"], max_iterations: int = 500) -> ClimbPath:
    """Maximise the log density of all data by L-BFGS, from `start`."""
    from scipy.optimize import minimize

    dtype = start.dtype

    def negative(position: np.ndarray) -> tuple[float, np.ndarray]:
        value, score = objective(jnp.asarray(position, dtype))
        return -float(value), -np.asarray(score, np.float64)

    at_start = np.asarray(start, np.float64)
    if not np.isfinite(negative(at_start)[0]):
        raise InputError(
            "the search for a mode cannot start where the log density is not finite: give example "
            "a position inside its support."
        )
    positions = [at_start]
    result = minimize(
        negative,
        at_start,
        jac=True,
        method="L-BFGS-B",
        callback=lambda position: positions.append(np.array(position)),
        # `ftol` stops at rounding error. `gtol` is off: the size of a gradient depends on units.
        options={
            "maxiter": max_iterations,
            "maxcor": 20,
            "ftol": 2 * float(jnp.finfo(dtype).eps),
            "gtol": 0.0,
        },
    )
    if np.all(np.isfinite(result.x)):
        positions.append(np.asarray(result.x))
    return ClimbPath(positions, bool(result.success))


class Climbed(NamedTuple):
    """The final positions of climbs."""

    positions: Float[np.ndarray, "n d"]
    log_densities: Float[np.ndarray, " n"]
    num_evaluations: int


def climb_all(evaluate: Batch, starts: Float[np.ndarray, "n d"], most: int) -> Climbed:
    """Climb from every row, one evaluation of the batch per step, with at most `most` of them."""
    # If the log density is unbounded, numbers overflow, which ends the climb.
    with np.errstate(over="ignore", invalid="ignore"):
        return _climb_all(evaluate, starts, most)


def _climb_all(evaluate: Batch, starts: Float[np.ndarray, "n d"], most: int) -> Climbed:
    at = np.asarray(starts, np.float64)
    logs, scores = evaluate(at)
    memory = _Memory(*at.shape)
    is_active = np.isfinite(logs) & np.isfinite(scores).all(axis=1)
    logs = np.where(is_active, logs, -np.inf)
    scores = np.where(is_active[:, None], scores, 0.0)
    # The first step has length one at most.
    ahead = scores / np.maximum(np.linalg.norm(scores, axis=1, keepdims=True), 1.0)
    length, num_small, number = np.ones(len(at)), np.zeros(len(at)), 1
    while number < most and is_active.any():
        there = np.where(is_active[:, None], at + length[:, None] * ahead, at)
        found, slopes = evaluate(there)
        number += 1
        promised = length * np.sum(scores * ahead, axis=1)
        is_finite = np.isfinite(found) & np.isfinite(slopes).all(axis=1)
        gain = np.where(is_finite, found, -np.inf) - np.where(is_active, logs, 0.0)
        is_better = is_active & (gain >= LEAST_GAIN * promised) & (promised > 0)
        memory.add(is_better, there - at, scores - np.where(is_finite[:, None], slopes, 0.0))
        at = np.where(is_better[:, None], there, at)
        logs = np.where(is_better, found, logs)
        scores = np.where(is_better[:, None], slopes, scores)
        ahead = np.where(is_better[:, None], memory.preconditioned(scores), ahead)
        length = np.where(is_better, 1.0, SHORTER * length)
        num_small = np.where(is_better, (num_small + 1) * (gain < SMALL_GAIN), num_small)
        is_active &= (num_small < MOST_SMALL) & (length > SHORTER**12)
    return Climbed(at, logs, number)


def points_between(
    peaks: Float[np.ndarray, "n d"], other: Float[np.ndarray, " d"]
) -> Float[np.ndarray, "s n d"]:
    """Points on the way from each peak to another one, at which barriers are sought."""
    return peaks + BETWEEN[:, None, None] * (other - peaks)


def has_barrier(
    between: Float[np.ndarray, "s n"], peaks: Float[np.ndarray, " n"], other: float
) -> Bool[np.ndarray, " n"]:
    """Whether the log density falls below both ends on the way from each peak to another one.

    Arguments:
        between: log densities at `points_between`.
        peaks, other: log densities of the peaks.
    """
    return between.min(axis=0) < np.minimum(peaks, other) - BARRIER


class _Memory:
    """The last moves of every climb, and how the score changed."""

    def __init__(self, num: int, dim: int):
        self._moves = np.zeros((MEMORY, num, dim))
        self._changes = np.zeros((MEMORY, num, dim))

    def add(
        self,
        where: Bool[np.ndarray, " n"],
        moves: Float[np.ndarray, "n d"],
        changes: Float[np.ndarray, "n d"],
    ) -> None:
        """Add a pair to the rows `where`, unless the log density is convex along the move."""
        where = where & (np.sum(moves * changes, axis=1) > 1e-10 * np.sum(changes**2, axis=1))
        for kept, new in ((self._moves, moves), (self._changes, changes)):
            kept[:-1, where] = kept[1:, where]
            kept[-1, where] = new[where]

    def preconditioned(self, scores: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """The estimated inverse curvature times the scores (two-loop recursion)."""
        products = np.sum(self._moves * self._changes, axis=2)
        inverse = np.divide(1.0, products, out=np.zeros_like(products), where=products > 0)
        shares = np.zeros_like(products)
        result = scores.copy()
        for i in reversed(range(MEMORY)):
            shares[i] = inverse[i] * np.sum(self._moves[i] * result, axis=1)
            result -= shares[i][:, None] * self._changes[i]
        squares = np.sum(self._changes[-1] ** 2, axis=1)
        size = np.linalg.norm(scores, axis=1)
        scale = np.where(squares > 0, products[-1] / np.maximum(squares, 1e-300), 1.0)
        scale = np.where(squares > 0, scale, 1 / np.maximum(size, 1.0))
        result *= scale[:, None]
        for i in range(MEMORY):
            back = shares[i] - inverse[i] * np.sum(self._changes[i] * result, axis=1)
            result += back[:, None] * self._moves[i]
        return result
