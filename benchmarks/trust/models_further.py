"""Count, survival, time-series and covariance models, and mixtures."""

from typing import Any

import numpy as np

from benchmarks.trust.model import in_numpyro, in_pymc


def _negative_binomial() -> Any:
    import pymc as pm

    rng = np.random.default_rng(25)
    site, month = (index.ravel() for index in np.indices((12, 8)))
    effect = 0.6 * rng.normal(size=12)[site] + 0.3 * rng.normal(size=8)[month]
    mean = np.exp(1.0 + effect)
    counts = rng.negative_binomial(2.0, 2.0 / (2.0 + mean))
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 2)
        sigma_site = pm.HalfNormal("sigma_site", 1)
        sigma_month = pm.HalfNormal("sigma_month", 1)
        by_site = pm.Normal("by_site", 0, sigma_site, shape=12)
        by_month = pm.Normal("by_month", 0, sigma_month, shape=8)
        alpha = pm.Exponential("alpha", 0.5)
        mu = pm.math.exp(intercept + by_site[site] + by_month[month])
        pm.NegativeBinomial("count", mu=mu, alpha=alpha, observed=counts)
    return model


def _negative_binomial_easy() -> Any:
    import pymc as pm

    rng = np.random.default_rng(25)
    site, month = (index.ravel() for index in np.indices((12, 8)))
    effect = 0.6 * rng.normal(size=12)[site] + 0.3 * rng.normal(size=8)[month]
    mean = np.exp(1.0 + effect)
    counts = rng.negative_binomial(2.0, 2.0 / (2.0 + mean))
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 2)
        sigma_site = pm.HalfNormal("sigma_site", 1)
        sigma_month = pm.HalfNormal("sigma_month", 1)
        by_site = pm.Deterministic("by_site", sigma_site * pm.Normal("z_site", 0, 1, shape=12))
        by_month = pm.Deterministic("by_month", sigma_month * pm.Normal("z_month", 0, 1, shape=8))
        alpha = pm.Exponential("alpha", 0.5)
        mu = pm.math.exp(intercept + by_site[site] + by_month[month])
        pm.NegativeBinomial("count", mu=mu, alpha=alpha, observed=counts)
    return model


def _weibull() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(6)
    features = rng.normal(size=(80, 3))
    scale = np.exp(2.0 + features @ np.array([0.5, -0.3, 0.0]))
    lifetime, end = scale * rng.weibull(1.5, size=80), 8.0
    is_seen = lifetime < end

    def model(features, time, is_seen):
        intercept = numpyro.sample("intercept", dist.Normal(0, 5))
        slopes = numpyro.sample("slopes", dist.Normal(0, 1).expand([3]).to_event(1))
        shape = numpyro.sample("shape", dist.Exponential(1))
        log_hazard = shape * (jnp.log(time) - intercept - features @ slopes)
        seen = jnp.log(shape) + log_hazard - jnp.log(time)
        numpyro.factor("lifetimes", jnp.sum(jnp.where(is_seen, seen, 0.0) - jnp.exp(log_hazard)))

    return model, features, np.minimum(lifetime, end), is_seen


def _returns() -> np.ndarray:
    rng = np.random.default_rng(82)
    volatility = -1.0 + np.cumsum(0.25 * rng.normal(size=80))
    return np.exp(0.5 * volatility) * rng.normal(size=80)


def _volatility() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(returns):
        step = numpyro.sample("step", dist.Exponential(5.0))
        nu = numpyro.sample("nu", dist.Exponential(0.1))
        level = numpyro.sample("level", dist.GaussianRandomWalk(step, num_steps=len(returns)))
        numpyro.sample("return", dist.StudentT(nu, 0.0, jnp.exp(0.5 * level)), obs=returns)

    return model, _returns()


def _volatility_easy() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(returns):
        step = numpyro.sample("step", dist.Exponential(5.0))
        nu = numpyro.sample("nu", dist.Exponential(0.1))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([len(returns)]).to_event(1))
        level = numpyro.deterministic("level", step * jnp.cumsum(z))
        numpyro.sample("return", dist.StudentT(nu, 0.0, jnp.exp(0.5 * level)), obs=returns)

    return model, _returns()


def _gp_length() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(33)
    place = np.sort(rng.uniform(0, 10, size=25))
    outcome = np.sin(place / 2) + 0.5 * rng.normal(size=25)

    def model(place, outcome):
        # A long length scale with a large amplitude fits as well as noise alone.
        amplitude = numpyro.sample("amplitude", dist.HalfNormal(2))
        length = numpyro.sample("length", dist.LogNormal(0, 2))
        noise = numpyro.sample("noise", dist.HalfNormal(1))
        squares = ((place[:, None] - place) / length) ** 2
        kernel = amplitude**2 * jnp.exp(-0.5 * squares) + (noise**2 + 1e-4) * jnp.eye(len(place))
        numpyro.sample("outcome", dist.MultivariateNormal(0.0, kernel), obs=outcome)

    return model, place, outcome


def _mixture_model() -> Any:
    import pymc as pm

    rng = np.random.default_rng(55)
    outcome = np.concatenate([rng.normal(-1.2, 0.6, size=25), rng.normal(1.0, 1.0, size=55)])
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(2))
        means = pm.Normal(
            "means",
            0,
            3,
            shape=2,
            transform=pm.distributions.transforms.ordered,
            initval=np.array([-1.0, 1.0]),
        )
        sigmas = pm.HalfNormal("sigmas", 2, shape=2)
        pm.NormalMixture("outcome", w=weights, mu=means, sigma=sigmas, observed=outcome)
    return model


def _lkj_4() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(14)
    root = np.array([[1, 0, 0, 0], [0.9, 0.4, 0, 0], [-0.5, 0.2, 0.8, 0], [0.1, 0.6, 0.3, 0.7]])
    outcome = 2.0 + rng.normal(size=(30, 4)) @ root.T

    def model(outcome):
        mean = numpyro.sample("mean", dist.Normal(0, 5).expand([4]).to_event(1))
        scales = numpyro.sample("scales", dist.HalfCauchy(2).expand([4]).to_event(1))
        cholesky = numpyro.sample("cholesky", dist.LKJCholesky(4, concentration=1))
        root = jnp.diag(scales) @ cholesky
        numpyro.sample("outcome", dist.MultivariateNormal(mean, scale_tril=root), obs=outcome)

    return model, outcome


FURTHER = (
    in_pymc(
        "negative_binomial",
        "negative binomial counts, crossed effects",
        _negative_binomial,
        _negative_binomial_easy,
    ),
    in_numpyro("weibull", "Weibull survival with censoring", _weibull),
    in_numpyro("volatility", "stochastic volatility, centred", _volatility, _volatility_easy),
    in_numpyro("gp_length", "Gaussian process, inferred length scale", _gp_length),
    in_pymc("mixture_model", "mixture model with ordered means", _mixture_model),
    in_numpyro("lkj_4", "means and covariances of four outcomes", _lkj_4),
)
