"""Expectations and standard deviations from draws with known scores, by control variates.

Functions with mean zero under the target (`stein_features`) are regressed on; what they explain of
a function's fluctuation is subtracted from its mean. References: Mira, Solgi & Imparato (2013);
Oates, Girolami & Chopin (2017); South, Riabiz, Teymur & Oates (2022).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from nvgd._support.errors import InputError
from nvgd.posterior.stein_features import standardise
from nvgd.posterior.stein_regression import DrawGroups, controlled_means

# With fewer draws, there is no regression.
FEWEST_DRAWS = 30
# Where the density ends abruptly at a bound, Stein's identity does not hold. Control variates are
# left out if a mean score is more than this many of its errors from zero, and for a function whose
# mean they change by more than this many of its errors.
LARGEST_CHANGE = 6.0


class Estimate(NamedTuple):
    """Estimated expectations.

    Attributes:
        means: one per function.
        errors: their standard errors.
        is_controlled: whether control variates were used; otherwise the mean is the plain one.
    """

    means: Float[np.ndarray, " k"]
    errors: Float[np.ndarray, " k"]
    is_controlled: Bool[np.ndarray, " k"]


class Moments(NamedTuple):
    """Estimated means and standard deviations, each with its standard error."""

    means: Float[np.ndarray, " k"]
    mean_errors: Float[np.ndarray, " k"]
    sds: Float[np.ndarray, " k"]
    sd_errors: Float[np.ndarray, " k"]


def stein_expectation(
    values: ArrayLike, positions: ArrayLike, scores: ArrayLike, groups: ArrayLike
) -> Estimate:
    """Expectations of functions of the draws, with control variates where they reduce the error.

    The control variates are the images of linear and quadratic functions under Stein's operator.
    Their coefficients for the draws of one fold come from the draws of the other folds, so that
    they are independent of the draws that they are applied to. The error is that of a mean of
    independent groups. Each function uses the simplest of three estimates (plain, linear,
    quadratic) unless a more complex one has a clearly smaller error and agrees with the plain one.

    Arguments:
        values: (m, k), one column per function.
        positions: (m, d), in unconstrained space.
        scores: (m, d), the gradients of the log density there.
        groups: (m,), whole numbers. Draws of different groups are independent; those of one group,
            such as a chain, may be correlated, and are in order of time. With fewer than 8 groups,
            batches of consecutive draws are treated as independent.
    """
    values, y, t, draws = _prepared(values, positions, scores, groups)
    standard, centre, scale = _standardised(values)
    controlled, levels = _best(draws, y, t, standard, len(scale))
    means, errors = draws.mean_and_error(controlled)
    return Estimate(centre + scale * means, scale * errors, levels > 0)


def stein_moments(
    values: ArrayLike, positions: ArrayLike, scores: ArrayLike, groups: ArrayLike
) -> Moments:
    """Means and standard deviations of functions of the draws; arguments as `stein_expectation`.

    The standard deviation comes from the mean of (g − ḡ)², estimated in the same way. The plain
    standard deviation is returned where its error is not clearly larger.
    """
    values, y, t, draws = _prepared(values, positions, scores, groups)
    standard, centre, scale = _standardised(values)
    k = len(scale)
    both = np.concatenate([standard, standard**2], axis=1)
    controlled, levels = _best(draws, y, t, both, k)
    plain = draws.means_and_influences(both)
    means, mean_errors = draws.mean_and_error(controlled[..., :k])
    sds, sd_errors = _deviation(draws, controlled[..., :k], controlled[..., k:], levels[:k] > 0)
    plain_sds, plain_errors = _deviation(
        draws, plain[..., :k], plain[..., k:], np.zeros(k, dtype=bool)
    )
    with np.errstate(invalid="ignore"):
        is_better = (sd_errors < draws.hurdle * plain_errors) & (sds > 0) & (levels[k:] > 0)
    return Moments(
        centre + scale * means,
        scale * mean_errors,
        scale * np.where(is_better, sds, plain_sds),
        scale * np.where(is_better, sd_errors, plain_errors),
    )


def total_errors(
    errors: Float[np.ndarray, " k"],
    means: Float[np.ndarray, " k"],
    sds: Float[np.ndarray, " k"],
    density_error: float,
    precision: np.dtype,
) -> Float[np.ndarray, " k"]:
    """Standard errors of means, including the errors that more draws do not reduce.

    Control variates can make the error of sampling smaller than that of the log density. An error
    of the log density with standard deviation δ over the draws shifts a mean by its covariance with
    the function, to first order, which is at most δ times the function's standard deviation.

    Arguments:
        errors: errors of sampling.
        density_error: δ, in nats.
        precision: type of the numbers in which positions and scores were computed.
    """
    rounding = np.finfo(precision).eps * (np.abs(means) + sds)
    return np.sqrt(errors**2 + (density_error * sds) ** 2 + rounding**2)


def _deviation(
    draws: DrawGroups,
    first: Float[np.ndarray, "2 g k"],
    second: Float[np.ndarray, "2 g k"],
    is_controlled: Bool[np.ndarray, " k"],
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """√(E[h] − E[g]²) and its error, from means of groups of g, with plain mean 0, and h = g²."""
    means, mean_errors = draws.mean_and_error(first)
    # E[h] − ḡ² is too small by the variance of the plain mean ḡ; the controlled mean is not ḡ.
    excess = np.where(is_controlled, 0.0, mean_errors**2)
    variances = draws.mean_and_error(second)[0] - means**2 + excess
    with np.errstate(invalid="ignore", divide="ignore"):
        sds = np.sqrt(np.maximum(variances, 0))
        _, errors = draws.mean_and_error((second - 2 * means * first) / (2 * sds))
    return sds, np.where(sds > 0, errors, 0.0 if first.shape[1] > 1 else np.nan)


def _prepared(
    values: ArrayLike, positions: ArrayLike, scores: ArrayLike, groups: ArrayLike
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, DrawGroups]:
    """Checked inputs, sorted by group; positions and scores standardised, None if unusable."""
    try:
        values, positions, scores = (
            np.asarray(array, np.float64) for array in (values, positions, scores)
        )
        groups = np.asarray(groups)
    except (TypeError, ValueError):
        raise InputError(
            "values, positions, scores and groups must be arrays of numbers."
        ) from None
    shapes = (values.shape, positions.shape, scores.shape, groups.shape)
    fits = values.ndim == positions.ndim == 2 and positions.shape == scores.shape
    if not fits or groups.shape != values.shape[:1] or len(values) != len(positions):
        raise InputError(
            "values (m, k), positions (m, d), scores (m, d) and groups (m,) must have these "
            f"shapes, got {', '.join(map(str, shapes))}."
        )
    if not np.issubdtype(groups.dtype, np.integer):
        raise InputError(f"groups must be whole numbers, got {groups.dtype}.")
    if not len(values) or not positions.shape[1]:
        raise InputError(f"there must be at least one draw in one dimension, got {shapes[1]}.")
    draws = DrawGroups(groups)
    values = values[draws.order]
    is_usable = np.isfinite(positions).all() and np.isfinite(scores).all() and scores.any()
    if not is_usable or len(values) < FEWEST_DRAWS:
        return values, None, None, draws
    return values, *standardise(positions[draws.order], scores[draws.order]), draws


def _standardised(
    values: Float[np.ndarray, "m k"],
) -> tuple[Float[np.ndarray, "m k"], Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Values with mean 0 and standard deviation 1, the mean, and the standard deviation.

    The latter is 1 for columns without spread. Columns that are not finite become NaN.
    """
    values = np.where(np.isfinite(values).all(axis=0), values, np.nan)
    centre, scale = values.mean(axis=0), values.std(axis=0)
    scale = np.where(scale > 1e-14 * np.abs(centre), scale, 1.0)
    return (values - centre) / scale, centre, scale


def _best(
    draws: DrawGroups,
    y: Float[np.ndarray, "m d"] | None,
    t: Float[np.ndarray, "m d"] | None,
    values: Float[np.ndarray, "m k"],
    num_directions: int,
) -> tuple[Float[np.ndarray, "2 g k"], Int[np.ndarray, " k"]]:
    """Means of groups after the subtraction that suits each column, and its level, 0, 1 or 2."""
    best = draws.means_and_influences(values)
    levels = np.zeros(values.shape[1], dtype=int)
    if y is None or t is None:
        return best, levels
    mean_scores, score_errors = draws.mean_and_error(draws.means_and_influences(t))
    if np.any(np.abs(mean_scores) > LARGEST_CHANGE * score_errors):
        return best, levels
    is_finite = np.isfinite(values).all(axis=0)
    plain, errors = draws.mean_and_error(best)
    usable, allowed = np.where(is_finite, values, 0.0), LARGEST_CHANGE * errors
    for level, candidate in enumerate(controlled_means(draws, y, t, usable, num_directions), 1):
        means, found = draws.mean_and_error(candidate)
        with np.errstate(invalid="ignore"):
            is_better = is_finite & (found < draws.hurdle * errors)
            is_better &= np.abs(means - plain) <= allowed
        best = np.where(is_better, candidate, best)
        errors, levels = np.where(is_better, found, errors), np.where(is_better, level, levels)
    return best, levels
