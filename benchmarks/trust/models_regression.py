"""Regressions, and the smallest model of all: a mean and a standard deviation."""

from typing import Any

import numpy as np

from benchmarks.trust.model import in_numpyro, in_pymc


def _normal_2() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    outcome = 3.0 + 2.0 * np.random.default_rng(2).normal(size=15)

    def model(outcome):
        mu = numpyro.sample("mu", dist.Normal(0, 10))
        sigma = numpyro.sample("sigma", dist.HalfNormal(5))
        numpyro.sample("outcome", dist.Normal(mu, sigma), obs=outcome)

    return model, outcome


def _zip() -> Any:
    import pymc as pm

    rng = np.random.default_rng(6)
    features = rng.normal(size=(150, 3))
    rate = np.exp(0.6 + features @ np.array([0.5, -0.3, 0.0]))
    counts = rng.poisson(rate) * (rng.random(150) < 0.6)
    with pm.Model() as model:
        psi = pm.Beta("psi", 1, 1)
        intercept = pm.Normal("intercept", 0, 2)
        slopes = pm.Normal("slopes", 0, 1, shape=3)
        mu = pm.math.exp(intercept + pm.math.dot(features, slopes))
        pm.ZeroInflatedPoisson("count", psi=psi, mu=mu, observed=counts)
    return model


def _ordinal() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(7)
    features = rng.normal(size=(120, 3))
    latent = features @ np.array([1.0, -0.6, 0.2]) + rng.logistic(size=120)
    rating = np.searchsorted(np.array([-2.0, -0.5, 0.5, 2.5]), latent)

    def model(features, rating):
        slopes = numpyro.sample("slopes", dist.Normal(0, 2).expand([3]).to_event(1))
        cutpoints = numpyro.sample(
            "cutpoints",
            dist.TransformedDistribution(
                dist.Normal(0, 2).expand([4]), dist.transforms.OrderedTransform()
            ),
        )
        logits = dist.OrderedLogistic(features @ slopes, cutpoints)
        numpyro.sample("rating", logits, obs=rating)

    return model, features, rating


def _robust() -> Any:
    import pymc as pm

    rng = np.random.default_rng(8)
    features = rng.normal(size=(100, 4))
    outcome = 2.0 + features @ np.array([1.0, 0.5, 0.0, -1.0]) + 0.5 * rng.standard_t(3, size=100)
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 5)
        slopes = pm.Normal("slopes", 0, 2, shape=4)
        sigma = pm.HalfNormal("sigma", 2)
        nu = pm.Gamma("nu", 2, 0.1)
        mu = intercept + pm.math.dot(features, slopes)
        pm.StudentT("outcome", nu=nu, mu=mu, sigma=sigma, observed=outcome)
    return model


REGRESSION = (
    in_numpyro("normal_2", "mean and standard deviation", _normal_2),
    in_pymc("zip", "zero-inflated Poisson regression", _zip),
    in_numpyro("ordinal", "ordinal regression, five ratings", _ordinal),
    in_pymc("robust", "Student t regression", _robust),
)
