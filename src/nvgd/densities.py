"""Test densities with exact draws and moments; all are normalised."""

from nvgd.evaluation.densities import (
    AbstractDensity,
    Banana,
    Funnel,
    Gaussian,
    GaussianMixture,
    Ring,
)

__all__ = [
    "AbstractDensity",
    "Banana",
    "Funnel",
    "Gaussian",
    "GaussianMixture",
    "Ring",
]
