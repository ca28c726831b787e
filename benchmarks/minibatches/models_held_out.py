"""Models that played no part in the choice of the method, with simulated rows."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from benchmarks.minibatches.model import MinibatchModel, WithMode
from benchmarks.minibatches.simulation import features, groups, normal, single


def ordinal():
    """Cumulative logit regression, five levels of which the last is rare."""
    rng = np.random.default_rng(21)
    x = features(rng, 15_000, 6, 0.4)
    latent = x @ np.array([0.8, -0.5, 0.3, 0.0, 0.2, -0.1]) + rng.logistic(size=len(x))
    y = np.searchsorted(np.array([-2.0, 0.0, 1.0, 5.0]), latent)

    def likelihood(theta, row):
        gaps = jnp.exp(theta["log_gaps"])
        cuts = theta["first"] + jnp.concatenate([jnp.zeros(1), jnp.cumsum(gaps)])
        z = cuts - row["x"] @ theta["slopes"]
        # log(σ(b) − σ(a)) = log σ(b) + log σ(−a) + log(1 − exp(a − b)).
        above = jnp.where(row["y"] < 4, jax.nn.log_sigmoid(z[jnp.minimum(row["y"], 3)]), 0.0)
        below = jnp.where(row["y"] > 0, jax.nn.log_sigmoid(-z[jnp.maximum(row["y"] - 1, 0)]), 0.0)
        is_inner = (row["y"] > 0) & (row["y"] < 4)
        gap = jnp.where(is_inner, gaps[jnp.clip(row["y"] - 1, 0, 2)], 1.0)
        return above + below + jnp.where(is_inner, jnp.log(-jnp.expm1(-gap)), 0.0)

    def prior(theta):
        return normal(theta["slopes"]) + normal(theta["first"], 3.0) + normal(theta["log_gaps"])

    example = {"first": np.zeros(()), "log_gaps": np.zeros(3), "slopes": np.zeros(6)}
    return MinibatchModel("ordinal", ordinal.__doc__, prior, likelihood, single(x=x, y=y), example)


def counts_raw_units():
    """Poisson regression with exposures in raw units: age in years, income in thousands."""
    rng = np.random.default_rng(22)
    n = 20_000
    age, income = rng.uniform(18, 90, n), rng.lognormal(3.5, 0.6, n)
    is_urban, exposure = rng.random(n) < 0.3, rng.uniform(0.05, 1.0, n)
    x = np.stack([np.ones(n), age, income, is_urban], axis=1)
    y = rng.poisson(exposure * np.exp(x @ np.array([-2.5, 0.02, -0.01, 0.6])))

    def likelihood(theta, row):
        log_rate = row["x"] @ theta["slopes"] + row["log_exposure"]
        return row["y"] * log_rate - jnp.exp(log_rate)

    def prior(theta):
        return normal(theta["slopes"], 5.0)

    rows = single(x=x, y=y * 1.0, log_exposure=np.log(exposure))
    return MinibatchModel(
        "counts_raw_units",
        counts_raw_units.__doc__,
        prior,
        likelihood,
        rows,
        {"slopes": np.zeros(4)},
    )


def varying_slopes():
    """Student-t responses; intercepts and slopes of 15 unequal groups, centred."""
    rng = np.random.default_rng(23)
    n, num_groups = 10_000, 15
    group = groups(rng, num_groups, 8, n)
    x = rng.normal(size=n)
    lines = np.array([1.0, -0.5]) + np.array([0.6, 0.2]) * rng.normal(size=(num_groups, 2))
    y = lines[group, 0] + lines[group, 1] * x + 0.7 * rng.standard_t(4, size=n)

    def likelihood(theta, row):
        own = theta["effects"][row["group"]]
        z = (row["y"] - own[0] - own[1] * row["x"]) * jnp.exp(-theta["log_noise"])
        return -2.5 * jnp.log1p(z**2 / 4) - theta["log_noise"]

    def prior(theta):
        sds = jnp.exp(theta["log_sds"])
        hyper = normal(theta["mean"], 2.0) - 0.5 * jnp.sum(sds**2) + jnp.sum(theta["log_sds"])
        spread = normal(theta["effects"] - theta["mean"], sds)
        volume = num_groups * jnp.sum(theta["log_sds"])
        return hyper + spread - volume + normal(theta["log_noise"])

    example = {
        "effects": np.zeros((num_groups, 2)),
        "log_noise": np.zeros(()),
        "log_sds": np.zeros(2),
        "mean": np.zeros(2),
    }
    return MinibatchModel(
        "varying_slopes",
        varying_slopes.__doc__,
        prior,
        likelihood,
        single(x=x, y=y, group=group),
        example,
        with_mode=WithMode.of_effects(effects=lambda theta: theta["log_sds"]),
    )


def crossed_counts():
    """Negative binomial counts; 30 items and 12 sites of very unequal size, centred."""
    rng = np.random.default_rng(24)
    n = 15_000
    item, site = groups(rng, 30, 5, n), groups(rng, 12, 20, n)
    items, sites = 0.7 * rng.normal(size=30), 0.4 * rng.normal(size=12)
    mean = np.exp(0.5 + items[item] + sites[site])
    y = rng.poisson(mean * rng.gamma(1.5, 1 / 1.5, n))

    def likelihood(theta, row):
        log_mean = theta["mean"] + theta["items"][row["item"]] + theta["sites"][row["site"]]
        size = jnp.exp(theta["log_size"])
        log_total = jnp.logaddexp(theta["log_size"], log_mean)
        count = gammaln(row["y"] + size) - gammaln(size)
        return count + size * (theta["log_size"] - log_total) + row["y"] * (log_mean - log_total)

    def prior(theta):
        sds = jnp.exp(theta["log_sds"])
        hyper = normal(theta["mean"], 2.0) - 0.5 * jnp.sum(sds**2) + jnp.sum(theta["log_sds"])
        items_part = normal(theta["items"], sds[0]) - 30 * theta["log_sds"][0]
        sites_part = normal(theta["sites"], sds[1]) - 12 * theta["log_sds"][1]
        return hyper + items_part + sites_part + normal(theta["log_size"])

    example = {
        "items": np.zeros(30),
        "log_sds": np.zeros(2),
        "log_size": np.zeros(()),
        "mean": np.zeros(()),
        "sites": np.zeros(12),
    }
    return MinibatchModel(
        "crossed_counts",
        crossed_counts.__doc__,
        prior,
        likelihood,
        single(y=y * 1.0, item=item, site=site),
        example,
        with_mode=WithMode.of_effects(
            items=lambda theta: theta["log_sds"][0], sites=lambda theta: theta["log_sds"][1]
        ),
    )


def unbalanced_classes():
    """Multinomial logistic regression, six classes of which one has 60 rows, 105 parameters."""
    rng = np.random.default_rng(25)
    x = np.concatenate([np.ones((10_000, 1)), features(rng, 10_000, 20, 0.2)], axis=1)
    weights = 0.5 * rng.normal(size=(21, 5))
    weights[0] = [0.0, -1.0, -2.0, -3.0, -5.5]
    logits = np.concatenate([np.zeros((len(x), 1)), x @ weights], axis=1)
    y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)

    def likelihood(theta, row):
        logits = jnp.concatenate([jnp.zeros(1), row["x"] @ theta["weights"]])
        return jax.nn.log_softmax(logits)[row["y"]]

    def prior(theta):
        return normal(theta["weights"], 1.5)

    return MinibatchModel(
        "unbalanced_classes",
        unbalanced_classes.__doc__,
        prior,
        likelihood,
        single(x=x, y=y),
        {"weights": np.zeros((21, 5))},
    )


def two_regressions():
    """Mixture of two regression lines with unknown noises and weight, ordered by slope."""
    rng = np.random.default_rng(26)
    n = 8000
    x, is_first = rng.normal(size=n), rng.random(n) < 0.3
    y = np.where(is_first, 1.0 - 0.8 * x, -0.5 + 1.0 * x)
    y = y + np.where(is_first, 0.5, 0.9) * rng.normal(size=n)

    def likelihood(theta, row):
        slopes = theta["slope"], theta["slope"] + jnp.exp(theta["log_gap"])
        parts = [
            jax.nn.log_sigmoid(sign * theta["logit"])
            - 0.5 * ((row["y"] - constant - slope * row["x"]) * jnp.exp(-log_sd)) ** 2
            - log_sd
            for sign, constant, slope, log_sd in (
                (1, theta["constants"][0], slopes[0], theta["log_sds"][0]),
                (-1, theta["constants"][1], slopes[1], theta["log_sds"][1]),
            )
        ]
        return jnp.logaddexp(*parts)

    def prior(theta):
        return (
            normal(theta["constants"], 2.0)
            + normal(theta["slope"], 2.0)
            + normal(theta["log_gap"])
            + normal(theta["log_sds"])
            + normal(theta["logit"], 1.5)
        )

    example = {
        "constants": np.zeros(2),
        "log_gap": np.zeros(()),
        "log_sds": np.zeros(2),
        "logit": np.zeros(()),
        "slope": np.zeros(()),
    }
    return MinibatchModel(
        "two_regressions",
        two_regressions.__doc__,
        prior,
        likelihood,
        single(x=x, y=y),
        example,
    )


HELD_OUT = (
    ordinal,
    counts_raw_units,
    varying_slopes,
    crossed_counts,
    unbalanced_classes,
    two_regressions,
)
