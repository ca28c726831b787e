"""Trends at the end of a run, and the number of further steps they suggest."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Smallest number of recorded steps for a trend.
MIN_STEPS = 12
# Number of windows of the history; a trend compares the last three.
NUM_WINDOWS = 4


class Trend(NamedTuple):
    """Change of a recorded quantity over the last quarter of a run."""

    drift: float
    """Mean of the last quarter minus that of the preceding quarter."""
    error: float
    """Standard error of the drift."""
    num_steps_more: int
    """Estimated number of further steps until the drift falls below its error; the length of the
    run so far if there is no estimate."""

    @property
    def significance(self) -> float:
        """Drift in units of its error."""
        return self.drift / max(self.error, 1e-12)


def trend(history: Float[np.ndarray, " t"], noise: float) -> Trend | None:
    """Compare the last quarter with the preceding one; None if the run was too short.

    If the means of successive windows converge geometrically, by a factor ρ per window, the drift
    after k more windows is ρᵏ times the last drift. It falls below the error after
    log(error/drift)/log ρ windows.

    Arguments:
        history: one value per step.
        noise: standard error of the mean over particles at a single step.
    """
    values = np.asarray(history, np.float64)
    values = values[np.isfinite(values)]
    num_steps = len(values)
    if num_steps < MIN_STEPS:
        return None
    window = num_steps // NUM_WINDOWS
    first, second, third = (
        values[num_steps - (k + 1) * window : num_steps - k * window] for k in (2, 1, 0)
    )
    # Scatter of the means of parts, which are less correlated than single steps, around a parabola.
    parts = [part.mean() for each in (second, third) for part in np.array_split(each, 3)]
    places = np.arange(len(parts))
    residuals = parts - np.polyval(np.polyfit(places, parts, 2), places)
    scatter = math.sqrt(np.sum(residuals**2) / (len(parts) - 3) * 2 / 3)
    error = math.hypot(noise * math.sqrt(2), scatter)
    drift = third.mean() - second.mean()
    before = second.mean() - first.mean()
    more = num_steps
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = drift / before if before else np.nan
    if abs(drift) > error > 0 and 0 < factor < 0.95:
        windows = math.log(error / abs(drift)) / math.log(factor)
        more = int(np.clip(windows * window, num_steps // 4, 9 * num_steps))
    return Trend(float(drift), float(error), more)


def apart(values: Float[np.ndarray, "t n k"], max_lag: int = 500) -> int:
    """Distance between nearly independent states of a thinned run, in states.

    The largest integrated autocorrelation time 1 + 2Σρ of all columns, with ρ averaged over the
    particles and summed until it falls to 0.05.
    """
    num_states = len(values)
    centred = values - values.mean(axis=(0, 1))
    variances = np.maximum(np.mean(centred**2, axis=(0, 1)), 1e-300)
    times = np.ones(values.shape[2])
    is_summed = np.ones(values.shape[2], bool)
    for lag in range(1, min(num_states // 2, max_lag)):
        correlations = np.mean(centred[lag:] * centred[:-lag], axis=(0, 1)) / variances
        is_summed &= correlations > 0.05
        if not is_summed.any():
            break
        times += np.where(is_summed, 2 * correlations, 0.0)
    return max(math.ceil(times.max()), 1)


def quartile_scale(values: Float[np.ndarray, " n"]) -> float:
    """Standard deviation estimated from the quartiles, which is insensitive to stray particles."""
    low, high = np.quantile(np.asarray(values, np.float64), (0.25, 0.75))
    return float(high - low) / 1.349


def distance_moved(history: Mapping[str, np.ndarray]) -> float:
    """Upper bound of the root mean square distance moved: the sum of all step norms."""
    return float(np.sum(history["step_norm"], dtype=np.float64))
