"""The models, with simulated rows unless they say otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from benchmarks.minibatches.model import MinibatchModel, WithMode
from benchmarks.minibatches.models_applied import APPLIED
from benchmarks.minibatches.models_held_out import HELD_OUT
from benchmarks.minibatches.simulation import features, groups, normal, single


def logistic():
    """Logistic regression, correlated features."""
    rng = np.random.default_rng(1)
    x = features(rng, 40_000, 9)
    logits = 0.5 + x @ rng.normal(size=9)
    y = rng.random(len(x)) < 1 / (1 + np.exp(-logits))

    def likelihood(theta, row):
        logit = theta["intercept"] + row["x"] @ theta["slopes"]
        return row["y"] * logit - jnp.logaddexp(0.0, logit)

    def prior(theta):
        return normal(theta["slopes"]) + normal(theta["intercept"], 5.0)

    example = {"intercept": np.zeros(()), "slopes": np.zeros(9)}
    return MinibatchModel(
        "logistic", logistic.__doc__, prior, likelihood, single(x=x, y=y * 1.0), example
    )


def poisson():
    """Poisson regression with a log link."""
    rng = np.random.default_rng(2)
    x = features(rng, 30_000, 7, 0.3)
    slopes = 0.4 * rng.normal(size=7)
    y = rng.poisson(np.exp(1.0 + x @ slopes))

    def likelihood(theta, row):
        log_rate = theta["intercept"] + row["x"] @ theta["slopes"]
        return row["y"] * log_rate - jnp.exp(log_rate)

    def prior(theta):
        return normal(theta["slopes"]) + normal(theta["intercept"], 5.0)

    example = {"intercept": np.zeros(()), "slopes": np.zeros(7)}
    return MinibatchModel(
        "poisson", poisson.__doc__, prior, likelihood, single(x=x, y=y * 1.0), example
    )


def student_t():
    """Linear regression with Student-t errors of unknown scale and degrees of freedom."""
    rng = np.random.default_rng(3)
    x = features(rng, 20_000, 10)
    y = x @ rng.normal(size=10) + 0.7 * rng.standard_t(3, size=len(x))

    def likelihood(theta, row):
        scale, df = jnp.exp(theta["log_scale"]), 1 + jnp.exp(theta["log_df"])
        z = (row["y"] - row["x"] @ theta["slopes"]) / scale
        constant = (
            gammaln(0.5 * (df + 1)) - gammaln(0.5 * df) - 0.5 * jnp.log(df) - theta["log_scale"]
        )
        return constant - 0.5 * (df + 1) * jnp.log1p(z**2 / df)

    def prior(theta):
        return (
            normal(theta["slopes"], 5.0) + normal(theta["log_scale"]) + normal(theta["log_df"] - 1)
        )

    example = {"log_df": np.zeros(()), "log_scale": np.zeros(()), "slopes": np.zeros(10)}
    return MinibatchModel(
        "student_t", student_t.__doc__, prior, likelihood, single(x=x, y=y), example
    )


def rare_events():
    """Logistic regression with about 60 events in 50,000 rows."""
    rng = np.random.default_rng(4)
    x = features(rng, 50_000, 5, 0.2)
    y = rng.random(len(x)) < 1 / (1 + np.exp(7.5 - x @ np.array([0.8, -0.5, 0.3, 0.0, 0.6])))

    def likelihood(theta, row):
        logit = theta["intercept"] + row["x"] @ theta["slopes"]
        return row["y"] * logit - jnp.logaddexp(0.0, logit)

    def prior(theta):
        return normal(theta["slopes"], 2.0) + normal(theta["intercept"], 10.0)

    example = {"intercept": np.zeros(()), "slopes": np.zeros(5)}
    return MinibatchModel(
        "rare_events", rare_events.__doc__, prior, likelihood, single(x=x, y=y * 1.0), example
    )


def multinomial():
    """Multinomial logistic regression, four classes, 104 parameters."""
    rng = np.random.default_rng(5)
    x = np.concatenate([np.ones((20_000, 1)), features(rng, 20_000, 25, 0.3)], axis=1)
    logits = x @ (0.5 * rng.normal(size=(26, 4)))
    y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)

    def likelihood(theta, row):
        return jax.nn.log_softmax(row["x"] @ theta["weights"])[row["y"]]

    def prior(theta):
        return normal(theta["weights"])

    return MinibatchModel(
        "multinomial",
        multinomial.__doc__,
        prior,
        likelihood,
        single(x=x, y=y),
        {"weights": np.zeros((26, 4))},
    )


def hierarchical_logistic():
    """Logistic regression, 40 groups of six to a thousand rows, centred."""
    rng = np.random.default_rng(6)
    group = groups(rng, 40, 6, 15_000)
    x = features(rng, 15_000, 3, 0.2)
    effects = -1.5 + 0.8 * rng.normal(size=40)
    logits = effects[group] + x @ np.array([0.5, -0.3, 0.2])
    y = rng.random(len(x)) < 1 / (1 + np.exp(-logits))

    def likelihood(theta, row):
        logit = theta["effects"][row["group"]] + row["x"] @ theta["slopes"]
        return row["y"] * logit - jnp.logaddexp(0.0, logit)

    def prior(theta):
        scale = jnp.exp(theta["log_scale"])
        spread = normal(theta["effects"] - theta["mean"], scale) - 40 * theta["log_scale"]
        hyper = normal(theta["mean"], 2.0) - 0.5 * scale**2 + theta["log_scale"]
        return spread + hyper + normal(theta["slopes"])

    example = {
        "effects": np.zeros(40),
        "log_scale": np.zeros(()),
        "mean": np.zeros(()),
        "slopes": np.zeros(3),
    }
    return MinibatchModel(
        "hierarchical_logistic",
        hierarchical_logistic.__doc__,
        prior,
        likelihood,
        single(x=x, y=y * 1.0, group=group),
        example,
        with_mode=WithMode.of_effects(effects=lambda theta: theta["log_scale"]),
    )


def hierarchical_normal():
    """Normal responses in 20 groups, three slopes, centred, 26 parameters."""
    rng = np.random.default_rng(7)
    group = groups(rng, 20, 5, 20_000)
    x = features(rng, 20_000, 3, 0.2)
    effects = -1.0 + 0.3 * rng.normal(size=20)
    y = effects[group] + x @ np.array([0.5, -0.3, 0.2]) + 1.5 * rng.normal(size=len(x))

    def likelihood(theta, row):
        mean = theta["effects"][row["group"]] + row["x"] @ theta["slopes"]
        z = (row["y"] - mean) * jnp.exp(-theta["log_noise"])
        return -0.5 * z**2 - theta["log_noise"]

    def prior(theta):
        scale = jnp.exp(theta["log_scale"])
        spread = normal(theta["effects"] - theta["mean"], scale) - 20 * theta["log_scale"]
        hyper = normal(theta["mean"], 2.0) - 0.5 * scale**2 + theta["log_scale"]
        return spread + hyper + normal(theta["slopes"]) + normal(theta["log_noise"])

    example = {
        "effects": np.zeros(20),
        "log_noise": np.zeros(()),
        "log_scale": np.zeros(()),
        "mean": np.zeros(()),
        "slopes": np.zeros(3),
    }
    return MinibatchModel(
        "hierarchical_normal",
        hierarchical_normal.__doc__,
        prior,
        likelihood,
        single(x=x, y=y, group=group),
        example,
        with_mode=WithMode.of_effects(effects=lambda theta: theta["log_scale"]),
    )


def raw_units():
    """Linear regression of house prices in raw units: years, metres, dollars."""
    rng = np.random.default_rng(8)
    n = 20_000
    year = rng.integers(1900, 2020, n)
    area = rng.lognormal(7.2, 0.4, n)
    rooms = rng.integers(1, 9, n)
    kelvin = rng.normal(285, 6, n)
    income = rng.lognormal(10.8, 0.5, n)
    x = np.stack([year, area, rooms, kelvin, income], axis=1).astype(float)
    y = 1e-2 * (year - 1960) + 1e-3 * area + 0.1 * rooms - 0.02 * (kelvin - 285) + 2e-5 * income
    y = y + 0.8 * rng.normal(size=n)

    def likelihood(theta, row):
        mean = theta["intercept"] + row["x"] @ theta["slopes"]
        return -0.5 * ((row["y"] - mean) * jnp.exp(-theta["log_noise"])) ** 2 - theta["log_noise"]

    def prior(theta):
        return (
            normal(theta["slopes"])
            + normal(theta["intercept"], 100.0)
            + normal(theta["log_noise"], 3.0)
        )

    example = {"intercept": np.zeros(()), "log_noise": np.zeros(()), "slopes": np.zeros(5)}
    return MinibatchModel(
        "raw_units", raw_units.__doc__, prior, likelihood, single(x=x, y=y), example
    )


def mixture():
    """Mixture of two normal distributions that overlap, ordered."""
    rng = np.random.default_rng(9)
    n = 10_000
    is_first = rng.random(n) < 0.35
    y = np.where(is_first, rng.normal(-1.0, 0.8, n), rng.normal(1.5, 1.2, n))

    def likelihood(theta, row):
        low, high = theta["low"], theta["low"] + jnp.exp(theta["log_gap"])
        parts = [
            jax.nn.log_sigmoid(sign * theta["logit"])
            - 0.5 * ((row["y"] - mean) * jnp.exp(-log_sd)) ** 2
            - log_sd
            for sign, mean, log_sd in (
                (1, low, theta["log_sds"][0]),
                (-1, high, theta["log_sds"][1]),
            )
        ]
        return jnp.logaddexp(*parts)

    def prior(theta):
        return (
            normal(theta["low"], 3.0)
            + normal(theta["log_gap"])
            + normal(theta["log_sds"])
            + normal(theta["logit"], 1.5)
        )

    example = {
        "log_gap": np.zeros(()),
        "log_sds": np.zeros(2),
        "logit": np.zeros(()),
        "low": np.zeros(()),
    }
    return MinibatchModel("mixture", mixture.__doc__, prior, likelihood, single(y=y), example)


def network():
    """Two-layer network of 49 weights whose units have distinct priors."""
    rng = np.random.default_rng(10)
    n, units = 5_000, 12
    x = rng.uniform(-2, 2, size=(n, 2))
    y = np.sin(1.5 * x[:, 0]) * np.cos(x[:, 1]) + 0.3 * rng.normal(size=n)
    angles = np.linspace(0, np.pi, units, endpoint=False)
    directions = 1.5 * np.stack([np.cos(angles), np.sin(angles)])
    offsets = np.linspace(-1.5, 1.5, units)[rng.permutation(units)]

    def likelihood(theta, row):
        hidden = jnp.tanh(
            row["x"] @ (directions + 0.4 * theta["inner"]) + offsets + 0.4 * theta["offsets"]
        )
        return -0.5 * ((row["y"] - hidden @ theta["outer"] - theta["constant"]) / 0.3) ** 2

    def prior(theta):
        return sum(normal(leaf) for leaf in jax.tree.leaves(theta))

    example = {
        "constant": np.zeros(()),
        "inner": np.zeros((2, units)),
        "offsets": np.zeros(units),
        "outer": np.zeros(units),
    }
    return MinibatchModel("network", network.__doc__, prior, likelihood, single(x=x, y=y), example)


def negative_binomial():
    """Negative binomial regression with unknown dispersion, skewed features."""
    rng = np.random.default_rng(11)
    n = 25_000
    x = np.concatenate([features(rng, n, 4), rng.exponential(size=(n, 2)) - 1], axis=1)
    mean = np.exp(0.3 + x @ np.array([0.4, -0.3, 0.2, 0.0, 0.3, -0.2]))
    y = rng.poisson(mean * rng.gamma(0.7, 1 / 0.7, n))

    def likelihood(theta, row):
        size = jnp.exp(theta["log_size"])
        log_mean = theta["intercept"] + row["x"] @ theta["slopes"]
        log_total = jnp.logaddexp(theta["log_size"], log_mean)
        count = gammaln(row["y"] + size) - gammaln(size)
        return count + size * (theta["log_size"] - log_total) + row["y"] * (log_mean - log_total)

    def prior(theta):
        return (
            normal(theta["slopes"])
            + normal(theta["intercept"], 3.0)
            + normal(theta["log_size"], 2.0)
        )

    example = {"intercept": np.zeros(()), "log_size": np.zeros(()), "slopes": np.zeros(6)}
    return MinibatchModel(
        "negative_binomial",
        negative_binomial.__doc__,
        prior,
        likelihood,
        single(x=x, y=y * 1.0),
        example,
    )


def zero_inflated():
    """Zero-inflated Poisson regression with covariates in both parts."""
    rng = np.random.default_rng(12)
    n = 20_000
    x = features(rng, n, 3, 0.4)
    is_zero = rng.random(n) < 1 / (1 + np.exp(0.5 - 0.8 * x[:, 0]))
    y = np.where(is_zero, 0, rng.poisson(np.exp(0.8 + x @ np.array([0.3, -0.2, 0.1]))))

    def likelihood(theta, row):
        logit = theta["zero"][0] + row["x"] @ theta["zero"][1:]
        log_rate = theta["rate"][0] + row["x"] @ theta["rate"][1:]
        rate = jnp.exp(log_rate)
        at_zero = jnp.logaddexp(jax.nn.log_sigmoid(logit), jax.nn.log_sigmoid(-logit) - rate)
        positive = jax.nn.log_sigmoid(-logit) + row["y"] * log_rate - rate
        return jnp.where(row["y"] == 0, at_zero, positive)

    def prior(theta):
        return normal(theta["zero"], 2.0) + normal(theta["rate"], 2.0)

    example = {"rate": np.zeros(4), "zero": np.zeros(4)}
    return MinibatchModel(
        "zero_inflated", zero_inflated.__doc__, prior, likelihood, single(x=x, y=y * 1.0), example
    )


def non_centred():
    """Poisson counts in 30 groups of very unequal size, non-centred."""
    rng = np.random.default_rng(13)
    group = groups(rng, 30, 3, 15_000)
    x = features(rng, 15_000, 2, 0.2)
    effects = 0.6 * rng.normal(size=30)
    y = rng.poisson(np.exp(0.2 + effects[group] + x @ np.array([0.3, -0.2])))

    def likelihood(theta, row):
        effect = jnp.exp(theta["log_scale"]) * theta["effects"][row["group"]]
        log_rate = theta["mean"] + effect + row["x"] @ theta["slopes"]
        return row["y"] * log_rate - jnp.exp(log_rate)

    def prior(theta):
        scale = jnp.exp(theta["log_scale"])
        hyper = normal(theta["mean"], 2.0) - 0.5 * scale**2 + theta["log_scale"]
        return hyper + normal(theta["effects"]) + normal(theta["slopes"])

    def in_own_units(theta):
        effects = (theta["effects"] - theta["mean"]) * jnp.exp(-theta["log_scale"])
        return {**theta, "effects": effects}

    example = {
        "effects": np.zeros(30),
        "log_scale": np.zeros(()),
        "mean": np.zeros(()),
        "slopes": np.zeros(2),
    }
    return MinibatchModel(
        "non_centred",
        non_centred.__doc__,
        prior,
        likelihood,
        single(x=x, y=y * 1.0, group=group),
        example,
        # With much data, the levels of the groups are nearly normal, and the effects are not.
        with_mode=WithMode(in_own_units, lambda theta: -30 * theta["log_scale"]),
        is_easier=True,
    )


BUILDERS = (
    logistic,
    poisson,
    student_t,
    rare_events,
    multinomial,
    hierarchical_logistic,
    hierarchical_normal,
    raw_units,
    mixture,
    network,
    negative_binomial,
    zero_inflated,
    non_centred,
    *HELD_OUT,
    *APPLIED,
)
MODELS = {build.__name__: build for build in BUILDERS}
