"""Checks: every measure with its expected value, and whether it raises an alarm."""

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
    num_strays,
    overall_ratio,
    principal_ratios,
    standardise,
    variance_ratios,
)
from nvgd.posterior.diagnostics.trend import Trend, distance_moved, quartile_scale, trend

# Smallest degrees of freedom of the Student-t tests; calibrated on small samples.
MIN_FREEDOM = 8.0


class Thresholds(NamedTuple):
    """Thresholds of alarms; `benchmarks/diagnostics` measures how often alarms are raised.

    A significant deviation in a large sample may be too small to matter. Hence an identity raises
    an alarm only if its deviation is significant and larger than a minimum.
    """

    level: float = 0.005
    """False-alarm probability of each family of identities, over all coordinates together."""
    shift: float = 0.15
    """Smallest shift of the mean that matters, in standard deviations of the particles."""
    ratio: float = 0.15
    """Smallest relative error of a variance that matters."""
    discrepancy: float = 0.01
    """Smallest held-out discrepancy per dimension that matters."""
    discrepancy_errors: float = 2.5
    """Number of standard errors by which the held-out discrepancy must exceed zero."""
    kernel_level: float = 0.004
    """P-value of the kernelised discrepancy below which it raises an alarm."""
    distinct: float = 0.5
    """Smallest acceptable share of distinct particles."""
    r_hat: float = 1.1
    """Largest acceptable R-hat between ensembles."""
    drift: float = 0.1
    """Smallest drift of the mean log density that matters, in standard deviations over the
    particles."""
    drift_errors: float = 3.0
    """Number of standard errors that the drift must exceed."""
    capped: float = 0.5
    """Largest acceptable share of capped moves, or of rescued particles, at the end of a run."""
    rejected: float = 0.9
    """Largest acceptable share of rejected moves."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One measure: its value, its standard error if it has one, and its expected value."""

    value: float
    error: float | None
    expected: str
    is_alarm: bool
    where: str = ""
    """The worst coordinate or direction, if there are several."""
    significance: float = 0.0
    """Deviation from the expected value in standard errors, where defined; 0 elsewhere."""


class Evidence(NamedTuple):
    """All checks by name, and further inputs of the verdict."""

    checks: Mapping[str, Check]
    trend: Trend | None
    """Trend of the mean log density."""
    moved: float
    """Upper bound of the distance moved by the particles, in units of their spread."""
    resolution: float
    """Smallest relative error of the overall variance that would have raised an alarm."""


def gather(
    particles: Float[np.ndarray, "n d"],
    scores: Float[np.ndarray, "n d"],
    log_densities: Float[np.ndarray, " n"],
    history: Mapping[str, np.ndarray],
    num_together: int,
    names: Sequence[str],
    replicates: Sequence[Float[np.ndarray, "_ d"]],
    thresholds: Thresholds,
) -> Evidence:
    """Compute all measures of particles with finite scores.

    Arguments:
        num_together: number of particles per state, over which the history is averaged.
        names: names of the coordinates.
        replicates: particles of independent runs.
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
        # Directions differ between folds, so that fewer particles contribute to each ratio.
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
    strays = float(num_strays(particles, np.asarray(log_densities, np.float64)))
    checks["stray particles"] = Check(strays, None, "0", strays > 0)
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
    """Critical value, in standard errors, for the largest of several tests.

    From Student's t distribution, with a quarter of the particles as degrees of freedom, because
    products of positions and scores have heavier tails than the normal distribution.
    """
    from scipy.special import stdtrit

    return float(stdtrit(max(num_particles / 4, MIN_FREEDOM), 1 - level / (2 * num_tests)))


def _worst(
    found: Identities, expected: float, least: float, critical: float, labels: Sequence[str]
) -> Check:
    """Check of the most significant identity, with those that deviate enough to matter first."""
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
        # For information only: the floor of the recorded discrepancy depends on the method.
        checks["drift of the recorded discrepancy"] = Check(
            recorded.drift, recorded.error, "0", False
        )
    return checks


def _shares(
    history: Mapping[str, np.ndarray], num_particles: int, thresholds: Thresholds
) -> dict[str, Check]:
    """Shares of capped and rejected moves and of rescued particles, over the last tenth."""
    checks: dict[str, Check] = {}
    measured: dict[str, np.ndarray] = {}
    if "share_capped" in history:
        measured["share of capped moves"] = history["share_capped"]
    if "acceptance" in history:
        measured["share of rejected moves"] = 1 - history["acceptance"]
    if "num_rescued" in history:
        measured["share of rescued particles"] = history["num_rescued"] / num_particles
    if "jump_acceptance" in history:
        measured["share of accepted jumps"] = history["jump_acceptance"]
    for name, values in measured.items():
        last = values[-max(len(values) // 10, 1) :]
        # NaN where the last stage of the run has no such moves.
        last = last[np.isfinite(last)]
        if len(last):
            share = float(np.mean(last))
            if "accepted" in name:
                checks[name] = Check(share, None, "above 0 if there are several modes", False)
                continue
            largest = thresholds.rejected if "rejected" in name else thresholds.capped
            checks[name] = Check(share, None, f"below {largest}", share > largest)
    return checks
