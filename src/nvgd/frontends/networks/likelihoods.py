"""The likelihoods by name."""

from nvgd._support.errors import check_choice, check_kind
from nvgd.frontends.networks.class_likelihoods import Bernoulli, Categorical
from nvgd.frontends.networks.likelihood import AbstractLikelihood
from nvgd.frontends.networks.numeric_likelihoods import Gaussian, Heteroscedastic, Poisson

LIKELIHOODS: dict[str, type[AbstractLikelihood]] = {
    "gaussian": Gaussian,
    "heteroscedastic": Heteroscedastic,
    "poisson": Poisson,
    "categorical": Categorical,
    "bernoulli": Bernoulli,
}


def as_likelihood(likelihood: AbstractLikelihood | str) -> AbstractLikelihood:
    """A likelihood of this name with its defaults, or the given one."""
    if isinstance(likelihood, str):
        check_choice("likelihood", likelihood, LIKELIHOODS)
        return LIKELIHOODS[likelihood]()
    check_kind("likelihood", likelihood, AbstractLikelihood, "networks.Gaussian(noise=0.1)")
    return likelihood
