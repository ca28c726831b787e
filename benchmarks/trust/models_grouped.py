"""Groups beyond the normal model: hurdles, proportions and raters."""

from typing import Any

import numpy as np

import nvgd
from benchmarks.trust.model import Exact, TrustModel, in_numpyro, in_pymc, non_centred

# Tumours and rats of twenty groups, simulated.
NUM_GROUPS, NUM_RATERS, NUM_STATIONS, NUM_CLINICS = 20, 25, 10, 160


def _rats() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(71)
    rats = rng.integers(10, 40, size=NUM_GROUPS)
    return rats, rng.binomial(rats, rng.beta(2.0, 12.0, size=NUM_GROUPS))


def _beta_binomial() -> Any:
    import pymc as pm

    rats, tumours = _rats()
    with pm.Model() as model:
        mean = pm.Beta("mean", 1, 1)
        # Heavy tail: the groups may be almost equal.
        concentration = pm.Pareto("concentration", alpha=1.5, m=1.0)
        share = pm.Beta("share", mean * concentration, (1 - mean) * concentration, shape=NUM_GROUPS)
        pm.Binomial("tumours", rats, share, observed=tumours)
    return model


def _raters() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(72)
    rater, quality = rng.integers(0, NUM_RATERS, size=200), rng.normal(size=200)
    latent = 0.8 * quality + 0.7 * rng.normal(size=NUM_RATERS)[rater] + rng.logistic(size=200)
    score = np.searchsorted(np.array([-1.5, 0.0, 2.0]), latent)

    def model(rater, quality, score):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        scale = numpyro.sample("scale", dist.HalfCauchy(1))
        leniency = numpyro.sample(
            "leniency", dist.Normal(0, scale).expand([NUM_RATERS]).to_event(1)
        )
        cutpoints = numpyro.sample(
            "cutpoints",
            dist.TransformedDistribution(
                dist.Normal(0, 3).expand([3]), dist.transforms.OrderedTransform()
            ),
        )
        logits = dist.OrderedLogistic(slope * quality + leniency[rater], cutpoints)
        numpyro.sample("score", logits, obs=score)

    return model, rater, quality, score


def _rain() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Station, season and amount of rain; 0 on dry days."""
    rng = np.random.default_rng(73)
    station, season = np.repeat(np.arange(NUM_STATIONS), 25), rng.uniform(-1, 1, size=250)
    wet = -0.3 + 1.0 * season + 0.6 * rng.normal(size=NUM_STATIONS)[station]
    is_wet = rng.random(250) < 1 / (1 + np.exp(-wet))
    mean = np.exp(1.0 + 0.4 * season + 0.3 * rng.normal(size=NUM_STATIONS)[station])
    return station, season, is_wet * rng.gamma(1.3, mean / 1.3)


def _hurdle() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(station, season, rain):
        base = numpyro.sample("base", dist.Normal(0, 2).expand([2]).to_event(1))
        slope = numpyro.sample("slope", dist.Normal(0, 1).expand([2]).to_event(1))
        scale = numpyro.sample("scale", dist.HalfCauchy(1).expand([2]).to_event(1))
        shape = numpyro.sample("shape", dist.Gamma(2, 1))
        effects = numpyro.sample(
            "effects", dist.Normal(0, scale).expand([NUM_STATIONS, 2]).to_event(2)
        )
        linear = base + season[:, None] * slope + effects[station]
        is_wet = rain > 0
        numpyro.sample("wet", dist.Bernoulli(logits=linear[:, 0]), obs=is_wet.astype(int))
        amount = dist.Gamma(shape, shape * jnp.exp(-linear[:, 1]))
        with numpyro.handlers.mask(mask=is_wet):
            numpyro.sample("amount", amount, obs=jnp.where(is_wet, rain, 1.0))

    return model, *_rain()


def _effects() -> np.ndarray:
    """One measurement per clinic; their spread is small beside the error, 1."""
    return 1.0 + np.hypot(1, 0.15) * np.random.default_rng(121).normal(size=NUM_CLINICS)


def _many_groups() -> nvgd.Target:
    import numpyro
    import numpyro.distributions as dist

    def model(effects):
        mean = numpyro.sample("mean", dist.Normal(0, 5))
        spread = numpyro.sample("spread", dist.HalfNormal(1))
        with numpyro.plate("clinics", NUM_CLINICS):
            own = numpyro.sample("own", dist.Normal(mean, spread))
            numpyro.sample("effects", dist.Normal(own, 1), obs=effects)

    return nvgd.from_numpyro(model, _effects())


def _draw_many_groups(rng: np.random.Generator, num: int) -> dict[str, np.ndarray]:
    """The spread from a fine grid, then the mean and the effects, which are normal given it."""
    effects, spreads = _effects(), np.linspace(1e-4, 2, 20_001)
    variances = 1 + spreads**2
    precisions = 1 / 25 + NUM_CLINICS / variances
    means = np.sum(effects) / variances / precisions
    logs = -0.5 * (NUM_CLINICS * np.log(variances) + np.sum(effects**2) / variances)
    logs += 0.5 * precisions * means**2 - 0.5 * np.log(precisions) - 0.5 * spreads**2
    shares = np.cumsum(np.exp(logs - logs.max()))
    chosen = np.searchsorted(shares, shares[-1] * (rng.permutation(num) + 0.5) / num)
    spread = spreads[chosen]
    mean = means[chosen] + rng.normal(size=num) / np.sqrt(precisions[chosen])
    weights = (spread**2 / variances[chosen])[:, None]
    own = mean[:, None] + weights * (effects - mean[:, None])
    own += np.sqrt(weights) * rng.normal(size=own.shape)
    return {"mean": mean, "spread": spread, "own": own}


GROUPED = (
    in_pymc("beta_binomial", "proportions of twenty groups, Pareto prior", _beta_binomial),
    in_numpyro(
        "raters",
        "ordered ratings by 25 raters, half-Cauchy scale",
        _raters,
        non_centred(_raters, "leniency"),
    ),
    in_numpyro(
        "hurdle",
        "hurdle gamma with effects of stations, centred",
        _hurdle,
        non_centred(_hurdle, "effects"),
    ),
    TrustModel(
        "many_groups",
        "small effects of 160 clinics, centred",
        _many_groups,
        Exact(_draw_many_groups),
    ),
)
