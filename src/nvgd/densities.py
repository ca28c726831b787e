"""Test densities with exact draws and moments; all are normalised."""

from nvgd.evaluation.curved_densities import Banana, Funnel, Ring
from nvgd.evaluation.densities import AbstractDensity, Gaussian, GaussianMixture

__all__ = [
    "AbstractDensity",
    "Banana",
    "Funnel",
    "Gaussian",
    "GaussianMixture",
    "Ring",
]
