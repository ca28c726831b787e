"""Models as they come up in practice: raw units, censored times, rare groups; simulated rows.

They played no part in the choice of the method.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from benchmarks.minibatches.model import MinibatchModel, WithMode
from benchmarks.minibatches.simulation import features, groups, normal, single


def survival():
    """Weibull regression of times in days, of which half are censored; age in years."""
    rng = np.random.default_rng(31)
    n = 30_000
    age, is_treated = rng.uniform(30, 85, n), rng.random(n) < 0.5
    marker = rng.lognormal(0.0, 0.5, n)
    x = np.stack([age, is_treated, marker, age * is_treated], axis=1).astype(float)
    log_scale = 9.5 - 0.03 * age + 0.4 * is_treated - 0.3 * marker
    time = np.exp(log_scale) * rng.weibull(1.4, n)
    limit = rng.uniform(100, 2000, n)

    def likelihood(theta, row):
        shape = jnp.exp(theta["log_shape"])
        z = shape * (row["log_time"] - theta["intercept"] - row["x"] @ theta["slopes"])
        return row["is_seen"] * (theta["log_shape"] + z) - jnp.exp(z)

    def prior(theta):
        return (
            normal(theta["intercept"], 10.0) + normal(theta["slopes"]) + normal(theta["log_shape"])
        )

    rows = single(
        x=x, log_time=np.log(np.minimum(time, limit)), is_seen=np.where(time < limit, 1.0, 0.0)
    )
    example = {"intercept": np.zeros(()), "log_shape": np.zeros(()), "slopes": np.zeros(4)}
    return MinibatchModel("survival", survival.__doc__, prior, likelihood, rows, example)


def salaries():
    """Student-t regression of salaries in thousands on years, hours and a year of birth."""
    rng = np.random.default_rng(32)
    n = 50_000
    experience, hours = rng.exponential(10, n), rng.normal(38, 6, n)
    birth, is_manager = rng.integers(1955, 2002, n), rng.random(n) < 0.02
    x = np.stack([np.ones(n), experience, hours, birth, is_manager], axis=1).astype(float)
    y = x @ np.array([300.0, 0.8, 0.9, -0.15, 25.0]) + 6 * rng.standard_t(4, size=n)

    def likelihood(theta, row):
        z = (row["y"] - row["x"] @ theta["slopes"]) * jnp.exp(-theta["log_scale"])
        return -2.5 * jnp.log1p(z**2 / 4) - theta["log_scale"]

    def prior(theta):
        return normal(theta["slopes"], 300.0) + normal(theta["log_scale"], 3.0)

    example = {"log_scale": np.zeros(()), "slopes": np.zeros(5)}
    return MinibatchModel(
        "salaries", salaries.__doc__, prior, likelihood, single(x=x, y=y), example
    )


def clinics():
    """Negative binomial counts in 60 clinics of 2 to 700 rows, centred, 65 parameters."""
    rng = np.random.default_rng(33)
    n = 12_000
    clinic = groups(rng, 60, 2, n)
    x = features(rng, n, 2, 0.3)
    effects = 0.7 + 0.5 * rng.normal(size=60)
    mean = np.exp(effects[clinic] + x @ np.array([0.3, -0.2]))
    y = rng.poisson(mean * rng.gamma(2.0, 1 / 2.0, n))

    def likelihood(theta, row):
        log_mean = theta["effects"][row["clinic"]] + row["x"] @ theta["slopes"]
        size = jnp.exp(theta["log_size"])
        log_total = jnp.logaddexp(theta["log_size"], log_mean)
        count = gammaln(row["y"] + size) - gammaln(size)
        return count + size * (theta["log_size"] - log_total) + row["y"] * (log_mean - log_total)

    def prior(theta):
        scale = jnp.exp(theta["log_scale"])
        spread = normal(theta["effects"] - theta["mean"], scale) - 60 * theta["log_scale"]
        hyper = normal(theta["mean"], 2.0) - 0.5 * scale**2 + theta["log_scale"]
        return spread + hyper + normal(theta["slopes"]) + normal(theta["log_size"])

    example = {
        "effects": np.zeros(60),
        "log_scale": np.zeros(()),
        "log_size": np.zeros(()),
        "mean": np.zeros(()),
        "slopes": np.zeros(2),
    }
    return MinibatchModel(
        "clinics",
        clinics.__doc__,
        prior,
        likelihood,
        single(x=x, y=y * 1.0, clinic=clinic),
        example,
        with_mode=WithMode.of_effects(effects=lambda theta: theta["log_scale"]),
    )


def genres():
    """Multinomial logistic regression, eight classes, skewed features, 70 parameters."""
    rng = np.random.default_rng(34)
    n = 10_000
    x = np.concatenate([np.ones((n, 1)), rng.exponential(size=(n, 9)) - 1], axis=1)
    weights = 0.4 * rng.normal(size=(10, 7))
    weights[0] = np.linspace(0.5, -2.5, 7)
    logits = np.concatenate([np.zeros((n, 1)), x @ weights], axis=1)
    y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)

    def likelihood(theta, row):
        logits = jnp.concatenate([jnp.zeros(1), row["x"] @ theta["weights"]])
        return jax.nn.log_softmax(logits)[row["y"]]

    def prior(theta):
        return normal(theta["weights"], 2.0)

    example = {"weights": np.zeros((10, 7))}
    return MinibatchModel("genres", genres.__doc__, prior, likelihood, single(x=x, y=y), example)


def claims():
    """Gamma regression of amounts with a log link and unknown shape, 100,000 rows."""
    rng = np.random.default_rng(35)
    n = 100_000
    x = np.concatenate(
        [np.ones((n, 1)), features(rng, n, 4, 0.4), rng.random((n, 2)) < [0.001, 0.3]], axis=1
    )
    mean = np.exp(x @ np.array([6.0, 0.3, -0.2, 0.1, 0.0, 1.5, -0.4]))
    y = mean * rng.gamma(0.8, 1 / 0.8, n)

    def likelihood(theta, row):
        shape, log_mean = jnp.exp(theta["log_shape"]), row["x"] @ theta["slopes"]
        log_ratio = theta["log_shape"] + row["log_y"] - log_mean
        return shape * log_ratio - gammaln(shape) - jnp.exp(log_ratio)

    def prior(theta):
        return normal(theta["slopes"], 5.0) + normal(theta["log_shape"], 2.0)

    example = {"log_shape": np.zeros(()), "slopes": np.zeros(7)}
    rows = single(x=x, log_y=np.log(y))
    return MinibatchModel("claims", claims.__doc__, prior, likelihood, rows, example)


APPLIED = (survival, salaries, clinics, genres, claims)
