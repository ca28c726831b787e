"""Awkward priors and data: sparse, heavy-tailed, flat or redundant, on a bound, in raw units."""

from typing import Any

import numpy as np

from benchmarks.trust.model import in_numpyro, in_pymc


def _horseshoe() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(43)
    features = rng.normal(size=(60, 20))
    outcome = features[:, :3] @ np.array([2.0, -1.5, 1.0]) + rng.normal(size=60)

    def model(features, outcome):
        num = features.shape[1]
        tau = numpyro.sample("tau", dist.HalfCauchy(0.3))
        sigma = numpyro.sample("sigma", dist.HalfNormal(2))
        local = numpyro.sample("local", dist.HalfCauchy(1).expand([num]).to_event(1))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([num]).to_event(1))
        slopes = numpyro.deterministic("slopes", tau * local * z)
        numpyro.sample("outcome", dist.Normal(features @ slopes, sigma), obs=outcome)

    return model, features, outcome


def _cauchy_logit() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(31)
    features = rng.normal(size=(40, 4))
    answer = (features @ np.array([1.5, -1.0, 0.0, 0.5]) + rng.logistic(size=40) > 0).astype(int)
    # The last feature separates the answers almost completely.
    features[:, 3] = np.where(rng.random(40) < 0.95, answer, 1 - answer)

    def model(features, answer):
        intercept = numpyro.sample("intercept", dist.Cauchy(0, 10))
        slopes = numpyro.sample("slopes", dist.Cauchy(0, 2.5).expand([4]).to_event(1))
        logits = intercept + features @ slopes
        numpyro.sample("answer", dist.Bernoulli(logits=logits), obs=answer)

    return model, features, answer


def _on_bound() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(3)
    series = [0.0]
    for noise in rng.normal(size=60):
        series.append(0.99 * series[-1] + noise)

    def model(series, failures, trials):
        # No failure was seen, and the series is almost a random walk.
        rate = numpyro.sample("rate", dist.Uniform(0, 1))
        persistence = numpyro.sample("persistence", dist.Uniform(0, 1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(2))
        numpyro.sample("failures", dist.Binomial(trials, rate), obs=failures)
        numpyro.sample("next", dist.Normal(persistence * series[:-1], sigma), obs=series[1:])

    return model, np.array(series), np.array(0), 40


def _flat() -> Any:
    import pymc as pm

    rng = np.random.default_rng(4)
    feature = rng.normal(size=25)
    outcome = 1.0 + 0.5 * feature + 0.7 * rng.normal(size=25)
    with pm.Model() as model:
        intercept = pm.Flat("intercept")
        slope = pm.Flat("slope")
        sigma = pm.HalfFlat("sigma")
        pm.Normal("outcome", intercept + slope * feature, sigma, observed=outcome)
    return model


def _raw_units() -> Any:
    import pymc as pm

    rng = np.random.default_rng(44)
    year = rng.integers(1990, 2021, size=80).astype(float)
    income = np.round(np.exp(rng.normal(10.6, 0.5, size=80)))
    price = -4.1e6 + 2100.0 * year + 1.4 * income + 9000.0 * rng.normal(size=80)
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 1e7)
        per_year = pm.Normal("per_year", 0, 1e4)
        per_income = pm.Normal("per_income", 0, 10)
        sigma = pm.HalfNormal("sigma", 5e4)
        mu = intercept + per_year * year + per_income * income
        pm.Normal("price", mu, sigma, observed=price)
    return model


def _raw_units_easy() -> Any:
    import pymc as pm
    import pytensor.tensor as pt

    rng = np.random.default_rng(44)
    year = rng.integers(1990, 2021, size=80).astype(float)
    income = np.round(np.exp(rng.normal(10.6, 0.5, size=80)))
    price = -4.1e6 + 2100.0 * year + 1.4 * income + 9000.0 * rng.normal(size=80)
    with pm.Model() as model:
        # The same posterior, in the units of its least-squares fit.
        features = np.stack([np.ones(80), year, income], axis=1)
        fitted, _, _, _ = np.linalg.lstsq(features, price, rcond=None)
        shape = 9000.0 * np.linalg.cholesky(np.linalg.inv(features.T @ features))
        unit = pm.Flat("unit", shape=3)
        slopes = fitted + pt.dot(shape, unit)
        prior = pm.logp(pm.Normal.dist(0, np.array([1e7, 1e4, 10.0])), slopes)
        pm.Potential("prior", prior.sum())
        pm.Deterministic("intercept", slopes[0])
        pm.Deterministic("per_year", slopes[1])
        pm.Deterministic("per_income", slopes[2])
        sigma = pm.HalfNormal("sigma", 5e4)
        pm.Normal("price", pt.dot(features, slopes), sigma, observed=price)
    return model


def _redundant() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(5)
    group = np.repeat(np.arange(5), 10)
    outcome = 3.0 + rng.normal(size=5)[group] + 0.5 * rng.normal(size=50)

    def model(group, outcome):
        # Only sums of the mean and an effect are determined by the data.
        mean = numpyro.sample("mean", dist.Normal(0, 10))
        effect = numpyro.sample("effect", dist.Normal(0, 10).expand([5]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        numpyro.sample("outcome", dist.Normal(mean + effect[group], sigma), obs=outcome)

    return model, group, outcome


def _large_counts() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(45)
    feature = rng.normal(size=(30, 2))
    counts = rng.poisson(np.exp(10.0 + feature @ np.array([0.8, -0.5])))

    def model(feature, counts):
        intercept = numpyro.sample("intercept", dist.Normal(0, 10))
        slopes = numpyro.sample("slopes", dist.Normal(0, 2).expand([2]).to_event(1))
        rate = jnp.exp(intercept + feature @ slopes)
        numpyro.sample("count", dist.Poisson(rate), obs=counts)

    return model, feature, counts


PRIORS = (
    in_numpyro("horseshoe", "sparse regression, horseshoe prior", _horseshoe),
    in_numpyro(
        "cauchy_logit", "nearly separable logistic regression, Cauchy priors", _cauchy_logit
    ),
    in_numpyro("on_bound", "a rate and a persistence at their bounds", _on_bound),
    in_pymc("flat", "regression with flat priors", _flat),
    in_pymc("raw_units", "regression on years and incomes, raw units", _raw_units, _raw_units_easy),
    in_numpyro("redundant", "a mean and effects that only sum up", _redundant),
    in_numpyro("large_counts", "Poisson regression of counts of 20,000", _large_counts),
)
