"""Models that played no part in any choice: regressions, survival, space and classes."""

from typing import Any

import numpy as np

from benchmarks.trust.model import in_numpyro, in_pymc, non_centred


def _frailty() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(91)
    hospital, age = np.repeat(np.arange(15), 8), rng.normal(size=120)
    rate = rng.gamma(4, 1 / 4, size=15)[hospital] * np.exp(0.5 * age - 1)
    time = (rng.exponential(size=120) / rate) ** (1 / 1.3)
    is_dead = time < 4

    def model(hospital, age, time, is_dead):
        shape = numpyro.sample("shape", dist.LogNormal(0, 0.5))
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        base = numpyro.sample("base", dist.Normal(0, 2))
        variance = numpyro.sample("variance", dist.Exponential(1))
        with numpyro.plate("hospitals", 15):
            frailty = numpyro.sample("frailty", dist.Gamma(1 / variance, 1 / variance))
        log_rate = base + slope * age + jnp.log(frailty)[hospital]
        hazard = jnp.log(shape) + (shape - 1) * jnp.log(time) + log_rate
        numpyro.factor("survival", jnp.sum(is_dead * hazard - time**shape * jnp.exp(log_rate)))

    return model, hospital, age, np.minimum(time, 4), is_dead


def _lasso() -> Any:
    import pymc as pm

    rng = np.random.default_rng(92)
    x = rng.normal(size=(80, 25)) + 0.7 * rng.normal(size=(80, 1))
    y = x[:, :4] @ np.array([2.0, -1.5, 1.0, 0.5]) + rng.normal(size=80)
    with pm.Model() as model:
        width = pm.HalfCauchy("width", 1)
        noise = pm.HalfNormal("noise", 2)
        slopes = pm.Laplace("slopes", 0, width, shape=25)
        pm.Normal("y", pm.math.dot(x, slopes), noise, observed=y)
    return model


def _neighbours() -> tuple[np.ndarray, np.ndarray]:
    """Pairs of adjacent cells of a grid of 6 × 6."""
    cell = np.arange(36).reshape(6, 6)
    first = np.concatenate([cell[:, :-1].ravel(), cell[:-1].ravel()])
    second = np.concatenate([cell[:, 1:].ravel(), cell[1:].ravel()])
    return first, second


def _map_counts() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(93)
    row, column = np.divmod(np.arange(36), 6)
    expected = rng.uniform(2, 20, size=36)
    cases = rng.poisson(expected * np.exp(0.4 * np.sin(row) + 0.3 * np.cos(column)))
    first, second = _neighbours()

    def model(expected, cases):
        """Intrinsic autoregression on a map; the sum of the effects is held at zero softly."""
        base = numpyro.sample("base", dist.Normal(0, 1))
        scale = numpyro.sample("scale", dist.HalfNormal(1))
        with numpyro.plate("cells", 36):
            effect = numpyro.sample("effect", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.factor("smooth", -0.5 * jnp.sum((effect[first] - effect[second]) ** 2))
        numpyro.factor("centre", dist.Normal(0, 0.036).log_prob(jnp.sum(effect)))
        rate = expected * jnp.exp(base + scale * effect)
        numpyro.sample("cases", dist.Poisson(rate), obs=cases)

    return model, expected, cases


def _wide_regression() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(94)
    x = (
        rng.normal(size=(400, 200))
        @ np.linalg.cholesky(0.6 ** np.abs(np.subtract.outer(np.arange(200), np.arange(200)))).T
    )
    y = x @ (0.3 * rng.normal(size=200)) + rng.normal(size=400)

    def model(x, y):
        noise = numpyro.sample("noise", dist.HalfNormal(2))
        slopes = numpyro.sample("slopes", dist.Normal(0, 1).expand([200]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ slopes, noise), obs=y)

    return model, x, y


def _classes() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(95)
    x = rng.normal(size=(150, 5))
    y = np.argmax(x @ rng.normal(size=(5, 4)) + rng.gumbel(size=(150, 4)), axis=1)

    def model(x, y):
        base = numpyro.sample("base", dist.Normal(0, 5).expand([4]).to_event(1))
        slopes = numpyro.sample("slopes", dist.Normal(0, 5).expand([5, 4]).to_event(2))
        numpyro.sample("y", dist.Categorical(logits=base + x @ slopes), obs=y)

    return model, x, y


def _proportions() -> Any:
    import pymc as pm

    rng = np.random.default_rng(96)
    x = rng.normal(size=(90, 3))
    mean = 1 / (1 + np.exp(-(0.3 + x @ np.array([0.8, -0.4, 0.0]))))
    share = np.clip(rng.beta(12 * mean, 12 * (1 - mean)), 1e-4, 1 - 1e-4)
    with pm.Model() as model:
        base = pm.Normal("base", 0, 5)
        slopes = pm.Normal("slopes", 0, 2, shape=3)
        precision = pm.Gamma("precision", 1, 0.05)
        mean = pm.math.invlogit(base + pm.math.dot(x, slopes))
        pm.Beta("share", mean * precision, (1 - mean) * precision, observed=share)
    return model


def _change() -> tuple[Any, ...]:
    import jax
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(97)
    year = np.arange(60.0)
    disasters = rng.poisson(np.where(year < 27, 3.0, 1.2))

    def model(year, disasters):
        early = numpyro.sample("early", dist.Exponential(1))
        late = numpyro.sample("late", dist.Exponential(1))
        change = numpyro.sample("change", dist.Uniform(0, 60))
        rate = late + (early - late) * jax.nn.sigmoid(change - year)
        numpyro.sample("disasters", dist.Poisson(rate), obs=disasters)

    return model, year, disasters


def _abilities() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(98)
    player, rival = rng.integers(0, 30, size=(2, 300))
    skill = 0.8 * rng.normal(size=30)
    is_won = rng.random(300) < 1 / (1 + np.exp(skill[rival] - skill[player]))

    def model(player, rival, is_won):
        scale = numpyro.sample("scale", dist.HalfNormal(1))
        with numpyro.plate("players", 30):
            skill = numpyro.sample("skill", dist.Normal(0, scale))
        logits = skill[player] - skill[rival]
        numpyro.sample("won", dist.Bernoulli(logits=logits), obs=is_won.astype(int))

    return model, player, rival, is_won


HELD_OUT_2 = (
    in_numpyro("frailty", "Weibull survival with gamma frailties of hospitals", _frailty),
    in_pymc("lasso", "Laplace prior of unknown width, 25 correlated slopes", _lasso),
    in_numpyro("map_counts", "disease counts on a map, intrinsic autoregression", _map_counts),
    in_numpyro("wide_regression", "linear regression with 200 slopes", _wide_regression),
    in_numpyro("classes", "softmax regression with a free class too many", _classes),
    in_pymc("proportions", "beta regression", _proportions),
    in_numpyro("change", "a change of the rate of disasters", _change),
    in_numpyro(
        "abilities",
        "skills of thirty players from their games, centred",
        _abilities,
        non_centred(_abilities, "skill"),
    ),
)
