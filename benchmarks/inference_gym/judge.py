"""Errors of estimated means and standard deviations, in units of the true ones."""

import dataclasses

import numpy as np
from jaxtyping import Float

from benchmarks.inference_gym.targets import Truth


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Errors over all constrained scalars; NaN if an estimate is not finite."""

    rmse: float
    """Root mean square error of the means, in true standard deviations."""
    worst: float
    """Largest error of a mean, in true standard deviations."""
    smallest_sd_ratio: float
    largest_sd_ratio: float


def judge(mean: Float[np.ndarray, " k"], sd: Float[np.ndarray, " k"], truth: Truth) -> Judgement:
    """Compare estimates with the truth."""
    errors = (mean - truth.mean) / truth.sd
    ratios = sd / truth.sd
    return Judgement(
        float(np.sqrt(np.mean(errors**2))),
        float(np.max(np.abs(errors))),
        float(ratios.min()),
        float(ratios.max()),
    )
