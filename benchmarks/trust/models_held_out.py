"""Models that played no part in any choice: curves, series and latent variables."""

from typing import Any

import numpy as np

from benchmarks.trust.model import in_numpyro, in_pymc


def _growth() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(81)
    day = np.linspace(0, 30, 25)
    mass = 120 / (1 + np.exp(-0.35 * (day - 14))) * np.exp(0.08 * rng.normal(size=25))

    def model(day, mass):
        ceiling = numpyro.sample("ceiling", dist.LogNormal(jnp.log(100.0), 1))
        rate = numpyro.sample("rate", dist.HalfNormal(1))
        middle = numpyro.sample("middle", dist.Normal(15, 10))
        noise = numpyro.sample("noise", dist.HalfNormal(0.5))
        curve = jnp.log(ceiling) - jnp.logaddexp(0.0, -rate * (day - middle))
        numpyro.sample("mass", dist.LogNormal(curve, noise), obs=mass)

    return model, day, mass


def _epidemic() -> tuple[Any, ...]:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def infections(contact, recovery, initial):
        def day(state, _):
            susceptible, infected = state
            new = susceptible * (1 - jnp.exp(-contact * infected / 1000))
            return (susceptible - new, infected + new - recovery * infected), new

        return jax.lax.scan(day, (1000.0 - initial, initial), None, length=40)[1]

    rng = np.random.default_rng(82)
    expected = np.asarray(infections(0.45, 0.2, 3.0))
    cases = rng.negative_binomial(8, 8 / (8 + 0.6 * expected))

    def model(cases):
        contact = numpyro.sample("contact", dist.LogNormal(-1, 1))
        recovery = numpyro.sample("recovery", dist.Beta(2, 6))
        initial = numpyro.sample("initial", dist.HalfNormal(10))
        reported = numpyro.sample("reported", dist.Beta(3, 2))
        size = numpyro.sample("size", dist.HalfNormal(10))
        mean = reported * infections(contact, recovery, initial) + 1e-3
        numpyro.sample("cases", dist.NegativeBinomial2(mean, size), obs=cases)

    return model, cases


def _autoregression() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(83)
    series = np.zeros(152)
    for t in range(2, 152):
        series[t] = 0.6 * series[t - 1] + 0.25 * series[t - 2] + 0.4 * rng.standard_t(4)

    def model(series):
        first = numpyro.sample("first", dist.Uniform(-1, 1))
        second = numpyro.sample("second", dist.Uniform(-1, 1))
        level = numpyro.sample("level", dist.Normal(0, 10))
        noise = numpyro.sample("noise", dist.HalfCauchy(1))
        df = numpyro.sample("df", dist.Gamma(2, 0.1))
        mean = level + first * series[1:-1] + second * series[:-2]
        numpyro.sample("next", dist.StudentT(df, mean, noise), obs=series[2:])

    return model, 3 + series


def _nested_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """District of every school, school of every pupil, and the pupil's mark."""
    rng = np.random.default_rng(84)
    district = np.repeat(np.arange(8), 5)
    school = np.repeat(np.arange(40), 6)
    own = 0.4 * rng.normal(size=8)[district] + 0.6 * rng.normal(size=40)
    return district, school, 5.0 + own[school] + rng.normal(size=len(school))


def _nested(*, is_centred: bool) -> Any:
    import pymc as pm

    district, school, marks = _nested_data()
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 10)
        between = pm.HalfNormal("between", 1)
        within = pm.HalfNormal("within", 1)
        noise = pm.HalfNormal("noise", 2)
        if is_centred:
            districts = pm.Normal("districts", mean, between, shape=8)
            schools = pm.Normal("schools", districts[district], within, shape=40)
        else:
            own = pm.Normal("own", 0, 1, shape=8)
            districts = pm.Deterministic("districts", mean + between * own)
            rest = pm.Normal("rest", 0, 1, shape=40)
            schools = pm.Deterministic("schools", districts[district] + within * rest)
        pm.Normal("marks", schools[school], noise, observed=marks)
    return model


def _accidents() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Site, exposure and number of accidents."""
    rng = np.random.default_rng(85)
    site, exposure = np.repeat(np.arange(20), 4), rng.uniform(0.5, 8, size=80)
    rate = np.exp(-0.5 + 0.5 * rng.normal(size=20))[site]
    return site, exposure, rng.poisson(exposure * rate)


def _site_counts() -> Any:
    import pymc as pm

    site, exposure, accidents = _accidents()
    with pm.Model() as model:
        base = pm.Normal("base", 0, 2)
        scale = pm.HalfCauchy("scale", 1)
        effects = pm.Normal("effects", base, scale, shape=20)
        pm.Poisson("accidents", exposure * pm.math.exp(effects[site]), observed=accidents)
    return model


def _local_level(*, is_centred: bool) -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(86)
    river = 10 + np.cumsum(0.3 * rng.normal(size=60)) + 0.8 * rng.normal(size=60)

    def model(river):
        start = numpyro.sample("start", dist.Normal(10, 5))
        drift = numpyro.sample("drift", dist.HalfNormal(1))
        noise = numpyro.sample("noise", dist.HalfNormal(1))
        if is_centred:
            walk = dist.GaussianRandomWalk(drift, num_steps=60)
            level = numpyro.sample("level", walk)
        else:
            steps = numpyro.sample("steps", dist.Normal(0, 1).expand([60]).to_event(1))
            level = numpyro.deterministic("level", drift * jnp.cumsum(steps))
        numpyro.sample("river", dist.Normal(start + level, noise), obs=river)

    return model, river


def _one_factor() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(87)
    loadings = np.array([1.0, 0.8, 0.6, 0.9, 0.4])
    tests = rng.normal(size=(40, 1)) * loadings + 0.5 * rng.normal(size=(40, 5))

    def model(tests):
        """Nothing fixes the sign of the factor: two modes."""
        loadings = numpyro.sample("loadings", dist.Normal(0, 1).expand([5]).to_event(1))
        noise = numpyro.sample("noise", dist.HalfNormal(1).expand([5]).to_event(1))
        with numpyro.plate("people", 40):
            factor = numpyro.sample("factor", dist.Normal(0, 1))
        numpyro.sample("tests", dist.Normal(factor[:, None] * loadings, noise), obs=tests)

    return model, tests


def _covariance() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(88)
    root = np.tril(rng.normal(size=(4, 4))) + 1.5 * np.eye(4)
    returns = rng.normal(size=(30, 4)) @ root.T

    def model(returns):
        mean = numpyro.sample("mean", dist.Normal(0, 5).expand([4]).to_event(1))
        sds = numpyro.sample("sds", dist.HalfCauchy(2).expand([4]).to_event(1))
        correlations = numpyro.sample("correlations", dist.LKJCholesky(4, 1.0))
        scale = jnp.diag(sds) @ correlations
        numpyro.sample("returns", dist.MultivariateNormal(mean, scale_tril=scale), obs=returns)

    return model, returns


HELD_OUT = (
    in_numpyro("growth", "logistic growth of a mass, log-normal errors", _growth),
    in_numpyro("epidemic", "susceptible, infected, recovered; counted cases", _epidemic),
    in_numpyro("autoregression", "AR(2) with Student-t errors and a level", _autoregression),
    in_pymc(
        "nested",
        "pupils in schools in districts, centred",
        lambda: _nested(is_centred=True),
        lambda: _nested(is_centred=False),
    ),
    in_pymc("site_counts", "accidents at twenty sites, centred, half-Cauchy scale", _site_counts),
    in_numpyro(
        "local_level",
        "a river's level as a random walk, centred",
        lambda: _local_level(is_centred=True),
        lambda: _local_level(is_centred=False),
    ),
    in_numpyro("one_factor", "factor analysis whose sign is free", _one_factor),
    in_numpyro("covariance", "covariance matrix of four returns", _covariance),
)
