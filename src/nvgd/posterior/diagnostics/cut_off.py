"""Tails that chains never enter, such as the neck of a hierarchical model, by their scores.

Chains that all avoid a region agree with each other, so that R-hat does not see it. Scores do. For
a smooth step φ that is 1 in a tail of coordinate i, and the score s = ∇log p, the target has

    E[φ'(xᵢ) + φ(xᵢ)sᵢ] = 0.

Draws from the target without what lies beyond a point b of that tail have ∓p(b) instead: the
density at which they are cut off. In a hierarchical model the score of a log scale is noisy, since
it sums over all groups. What other functions with mean zero explain of it is subtracted first:
φ·((xⱼ − mⱼ)sⱼ + 1) and φ·sⱼ for all j ≠ i, with coefficients from other chains.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, stdtrit

from nvgd._support.blas_threads import on_one_thread
from nvgd.posterior.chains import Chains

# The step is at the quantile of this level from the end, and this many standard deviations wide.
LEVEL, WIDTH = 0.2, 0.5
# Most coordinates that are tested: those whose scores vary most beyond what their spread explains.
MOST_COORDINATES = 8
# Fewest chains; most dimensions, for the sake of time.
FEWEST_CHAINS, MOST_DIMENSIONS = 16, 200
# Folds of chains, and shrinkage of the coefficients per function and draw.
NUM_FOLDS, SHRINKAGE = 4, 0.1
# Draws at which the step is smaller do not count.
SMALLEST_STEP = 1e-3
# False-alarm probability over all tests, and smallest density at the cut that matters, in units of
# one over the standard deviation. Where a normal distribution lacks 2 %, its density is .05.
FALSE_ALARMS, LEAST_DENSITY = 0.005, 0.015


class CutOff(NamedTuple):
    """The tail that is most clearly cut off, or overfull."""

    coordinate: int
    is_low: bool
    density: float
    """Density at the cut, times the standard deviation; negative if the tail is overfull."""
    error: float
    is_alarm: bool


@on_one_thread
def cut_off_tail(chains: Chains) -> CutOff | None:
    """The most significant tail; None if there are too few draws to tell."""
    num_chains, length, dim = chains.positions.shape
    if num_chains < FEWEST_CHAINS or dim > MOST_DIMENSIONS:
        return None
    positions, scores = (
        np.asarray(each, np.float64).reshape(-1, dim) for each in (chains.positions, chains.scores)
    )
    sds = positions.std(axis=0)
    is_usable = np.isfinite(sds) & (sds > 0)
    if not is_usable.all():
        return None
    y, t = (positions - np.median(positions, axis=0)) / sds, scores * sds
    # By quartiles, since effects with a common scale have heavy tails, and their scores, too.
    spreads = np.prod([np.subtract(*np.quantile(each, (0.75, 0.25), axis=0)) for each in (y, t)], 0)
    coupled = np.argsort(-spreads, kind="stable")[:MOST_COORDINATES]
    critical = stdtrit(num_chains - 1, 1 - FALSE_ALARMS / (4 * len(coupled)))
    found = [
        CutOff(int(i), is_low, density, error, False)
        for i in coupled
        for is_low in (True, False)
        for density, error in [_density_at_cut(y, t, int(i), is_low, length)]
        if error > 0
    ]
    if not found:
        return None
    # Those that matter come first.
    worst = max(found, key=lambda each: (_matters(each), abs(each.density) / each.error))
    is_alarm = _matters(worst) and abs(worst.density) > critical * worst.error
    return worst._replace(is_alarm=bool(is_alarm))


def _matters(tail: CutOff) -> bool:
    return abs(tail.density) > LEAST_DENSITY


def _density_at_cut(
    y: Float[np.ndarray, "m d"], t: Float[np.ndarray, "m d"], i: int, is_low: bool, length: int
) -> tuple[float, float]:
    """The density at the cut of one tail, and its standard error over chains."""
    side, num_chains = -1.0 if is_low else 1.0, len(y) // length
    edge = np.quantile(y[:, i], LEVEL if is_low else 1 - LEVEL)
    u = side * (y[:, i] - edge) / WIDTH
    steps = ndtr(u)
    slopes = side * np.exp(-0.5 * u**2) / (np.sqrt(2 * np.pi) * WIDTH)
    values = slopes + steps * t[:, i]
    inside, others = np.flatnonzero(steps > SMALLEST_STEP), np.arange(y.shape[1]) != i
    y, t, weights = y[inside][:, others], t[inside][:, others], steps[inside, None]
    functions = np.concatenate([weights * (y * t + 1), weights * t], axis=1)
    # Consecutive chains are a fold.
    ends = np.searchsorted(inside, np.arange(1, NUM_FOLDS) * num_chains // NUM_FOLDS * length)
    folds = [(inside[rows], functions[rows]) for rows in np.split(np.arange(len(inside)), ends)]
    grams = [each.T @ each for _, each in folds]
    sums = [each.T @ values[rows] for rows, each in folds]
    for (rows, each), gram, own in zip(folds, grams, sums, strict=True):
        rest = sum(grams) - gram
        rest[np.diag_indices_from(rest)] *= 1 + SHRINKAGE * functions.shape[1] / len(inside)
        rest[np.diag_indices_from(rest)] += 1e-12
        values[rows] -= each @ np.linalg.solve(rest, sum(sums) - own)
    means = values.reshape(num_chains, -1).mean(axis=1)
    return side * float(means.mean()), float(means.std(ddof=1)) / num_chains**0.5
