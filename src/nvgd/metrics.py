"""Distances between particles and draws of the target, or the target itself."""

from nvgd.evaluation.distances import (
    Reference,
    energy_distance,
    kolmogorov_smirnov,
    mmd_squared,
    sliced_wasserstein,
)
from nvgd.stein.kernel_discrepancy import kernel_stein_discrepancy

__all__ = [
    "Reference",
    "energy_distance",
    "kernel_stein_discrepancy",
    "kolmogorov_smirnov",
    "mmd_squared",
    "sliced_wasserstein",
]
