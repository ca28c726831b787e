"""Every measure beside what it should be, and whether it is alarming."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from nvgd.posterior.diagnostics.agreement import r_hat
from nvgd.posterior.diagnostics.held_out import held_out_discrepancy
from nvgd.posterior.diagnostics.measures import (
    Identities,
    StandardisedSample,
    kernel_test,
    mean_scores,
    num_distinct,
    overall_ratio,
    principal_ratios,
    standardise,
    variance_ratios,
)
from nvgd.posterior.diagnostics.trend import Trend, distance_moved, quartile_scale, trend

# Degrees of freedom of the tests' law, at least; calibrated on small samples.
MIN_FREEDOM = 8.0


class Thresholds(NamedTuple):
    """Where a measure becomes an alarm; `benchmarks/diagnostics` shows how often it is one.

    What is significant in a large sample need not matter: an identity must be off by its least
    size as well.
    """

    level: float = 0.005
    """Probability of a false alarm of each family of identities, all coordinates together."""
    shift: float = 0.15
    """Least distance from the target, in the particles' standard deviations."""
    ratio: float = 0.15
    """Least relative error of a variance."""
    discrepancy: float = 0.01
    """Least held-out discrepancy a dimension."""
    discrepancy_errors: float = 2.5
    """Standard errors that it must lie above zero."""
    kernel_level: float = 0.004
    """Share of the bootstrap that exceeds the kernelised discrepancy."""
    distinct: float = 0.5
    """Least share of distinct particles."""
    r_hat: float = 1.1
    """Largest R-hat between ensembles."""
    drift: float = 0.1
    """Least drift of the mean log density, in standard deviations over the particles."""
    drift_errors: float = 3.0
    """Standard errors that it must exceed."""
    capped: float = 0.5
    """Largest share of capped moves, or of rescued particles, at the end of a run."""
    rejected: float = 0.9
    """Largest share of rejected moves."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One measure: its value, its standard error where it has one, and what is expected."""

    value: float
    error: float | None
    expected: str
    is_alarm: bool
    where: str = ""
    """The coordinate or direction that is worst, of several."""
    significance: float = 0.0
    """Standard errors from what is expected, where that can be said."""


class Evidence(NamedTuple):
    """All measures by name, and what the verdict needs besides."""

    checks: Mapping[str, Check]
    trend: Trend | None
    moved: float
    """Length of the path in units of the particles' spread; an upper bound."""
    resolution: float
    """The least relative error of the overall variance that would have been an alarm."""


def gather(
    particles: Float[np.ndarray, "n d"],
    scores: Float[np.ndarray, "n d"],
    log_densities: Float[np.ndarray, " n"],
    history: Mapping[str, np.ndarray],
    num_together: int,
    names: Sequence[str],
    replicates: Sequence[Float[np.ndarray, "n d"]],
    thresholds: Thresholds,
) -> Evidence:
    """Take every measure of particles whose scores are finite.

    Arguments:
        num_together: particles of one state, which the history is a mean over.
    """
    particles, scores = np.asarray(particles, np.float64), np.asarray(scores, np.float64)
    sample = standardise(particles, scores)
    directions = [f"principal direction {k + 1}" for k in range(particles.shape[1])]
    shown = directions[::-1] if sample.is_whitened else names
    checks: dict[str, Check] = {}

    for name, found, labels, freedom, least in (
        ("mean score", mean_scores(sample), shown, 1.0, thresholds.shift),
        ("variance ratio", overall_ratio(sample), ("",), 1.0, thresholds.ratio),
        (
            "variance ratio by coordinate",
            variance_ratios(particles, scores),
            names,
            1.0,
            thresholds.ratio,
        ),
        # Directions change from fold to fold: fewer particles stand behind each ratio.
        (
            "variance ratio by direction",
            principal_ratios(particles, scores),
            directions,
            0.15,
            thresholds.ratio,
        ),
    ):
        if len(found.values):
            critical = _critical(freedom * len(particles), len(found.values), thresholds.level)
            expected = 0.0 if name == "mean score" else 1.0
            checks[name] = _worst(found, expected, least, critical, labels)
    checks |= _distances(sample, thresholds)
    if replicates:
        checks["R-hat"] = _agreement([particles, *replicates], names, thresholds)
    log_density_trend = None
    if "log_density" in history:
        spread = quartile_scale(log_densities)
        noise = spread / math.sqrt(num_together)
        log_density_trend = trend(history["log_density"], noise)
        checks |= _trends(log_density_trend, spread, history, thresholds)
    checks |= _shares(history, num_together, thresholds)
    total = math.sqrt(float(np.sum(particles.var(axis=0))))
    moved = distance_moved(history) / max(total, 1e-300) if "step_norm" in history else math.inf
    error = checks["variance ratio"].error or 0.0
    resolution = max(thresholds.ratio, _critical(len(particles), 1, thresholds.level) * error)
    return Evidence(checks, log_density_trend, moved, resolution)


def _critical(num_particles: int | float, num_tests: int, level: float) -> float:
    """How many standard errors are alarming, for the largest of several.

    Student's t with a quarter of the particles as degrees of freedom: products of positions and
    scores have heavier tails than the normal.
    """
    from scipy.stats import t as student

    return float(student.ppf(1 - level / (2 * num_tests), max(num_particles / 4, MIN_FREEDOM)))


def _worst(
    found: Identities, expected: float, least: float, critical: float, labels: Sequence[str]
) -> Check:
    """The identity that is furthest off among those that are off by enough to matter."""
    sizes = np.abs(found.significances)
    matters = np.abs(found.values - expected) > least
    worst = int(np.argmax(np.where(matters, sizes, sizes * 1e-6)))
    is_alarm = bool(sizes[worst] > critical and matters[worst])
    value, error = float(found.values[worst]), float(found.errors[worst])
    significance = float(found.significances[worst])
    return Check(value, error, f"{expected:g}", is_alarm, labels[worst], significance)


def _distances(sample: StandardisedSample, thresholds: Thresholds) -> dict[str, Check]:
    num, dim = sample.positions.shape
    held_out = held_out_discrepancy(sample)
    kernel = kernel_test(sample)
    distinct = num_distinct(sample)
    return {
        "held-out Stein discrepancy": Check(
            held_out.value,
            held_out.error,
            "≤ 0 within its error",
            held_out.significance > thresholds.discrepancy_errors
            and held_out.value > thresholds.discrepancy * dim,
            significance=held_out.significance,
        ),
        "kernelised Stein discrepancy": Check(
            kernel.value,
            None,
            f"below {kernel.level:.3g}, the 99 % level of draws",
            kernel.share_above < thresholds.kernel_level,
        ),
        "distinct particles": Check(
            distinct, None, f"about {num}", distinct < thresholds.distinct * num
        ),
    }


def _agreement(
    ensembles: Sequence[np.ndarray], names: Sequence[str], thresholds: Thresholds
) -> Check:
    found = r_hat(ensembles)
    worst = int(np.argmax(found))
    value = float(found[worst])
    return Check(value, None, f"below {thresholds.r_hat}", value > thresholds.r_hat, names[worst])


def _trends(
    found: Trend | None, spread: float, history: Mapping[str, np.ndarray], thresholds: Thresholds
) -> dict[str, Check]:
    checks = {}
    if found is not None:
        checks["drift of the log density"] = Check(
            found.drift,
            found.error,
            "0",
            abs(found.significance) > thresholds.drift_errors
            and abs(found.drift) > thresholds.drift * spread,
            significance=found.significance,
        )
    recorded = trend(history.get("stein_discrepancy", np.empty(0)), 0.0)
    if recorded is not None:
        # For information: the method's own measure, whose floor depends on the method.
        checks["drift of the recorded discrepancy"] = Check(
            recorded.drift, recorded.error, "0", False
        )
    return checks


def _shares(
    history: Mapping[str, np.ndarray], num_particles: int, thresholds: Thresholds
) -> dict[str, Check]:
    """What the mover did to moves over the last tenth of the run."""
    checks: dict[str, Check] = {}
    measured: dict[str, np.ndarray] = {}
    if "share_capped" in history:
        measured["share of capped moves"] = history["share_capped"]
    if "acceptance" in history:
        measured["share of rejected moves"] = 1 - history["acceptance"]
    if "num_rescued" in history:
        measured["share of rescued particles"] = history["num_rescued"] / num_particles
    for name, values in measured.items():
        last = values[-max(len(values) // 10, 1) :]
        # Not a number where the run's last stage has no such moves.
        last = last[np.isfinite(last)]
        if len(last):
            share = float(np.mean(last))
            largest = thresholds.rejected if "rejected" in name else thresholds.capped
            checks[name] = Check(share, None, f"below {largest}", share > largest)
    return checks
