"""Bayesian neural networks: likelihoods and priors for `nvgd.from_network`."""

from nvgd.frontends.networks import from_network
from nvgd.frontends.networks_likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Heteroscedastic,
    Poisson,
)
from nvgd.frontends.networks_prediction import Prediction
from nvgd.frontends.networks_priors import Hierarchical, Laplace, Normal

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
