"""Bayesian neural networks: likelihoods and priors for `nvgd.from_network`."""

from nvgd.frontends.networks.from_network import from_network
from nvgd.frontends.networks.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Heteroscedastic,
    Poisson,
)
from nvgd.frontends.networks.prediction import Prediction
from nvgd.frontends.networks.priors import Hierarchical, Laplace, Normal

__all__ = [
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "Heteroscedastic",
    "Hierarchical",
    "Laplace",
    "Normal",
    "Poisson",
    "Prediction",
    "from_network",
]
