"""Regressions in raw units, where the scales of the weights differ by orders of magnitude."""

from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import cauchy, norm

from benchmarks.posteriors.exact import conditionally_gaussian_draws
from benchmarks.posteriors.posterior import (
    BenchmarkPosterior,
    Reparametrisation,
    scikit_learn_table,
    uci_table,
)


def linear_regression(
    name: str, description: str, features: np.ndarray, outcome: np.ndarray
) -> BenchmarkPosterior:
    """y ~ N(b + wᵀx, σ²) over (b, w, log σ).

    wⱼ ~ N(0, (2.5 sd(y)/sd(xⱼ))²), b ~ N(0, (100 sd(y))²), log σ ~ N(log sd(y), 1).
    """
    num_rows = len(outcome)
    design = np.column_stack([np.ones(num_rows), features])
    spread = outcome.std()
    scales = np.concatenate([[100 * spread], 2.5 * spread / features.std(axis=0)])
    # |y − Xw|² = |R(w − ŵ)|² + |y − Xŵ|²: cheap, and without cancellation in single precision.
    triangle = np.linalg.qr(design, mode="r")
    estimate = np.linalg.lstsq(design, outcome, rcond=None)[0]
    residual = np.sum((outcome - design @ estimate) ** 2)
    dim = design.shape[1] + 1

    def log_density(x):
        weights, log_sigma = x[:-1], x[-1]
        misfit = triangle @ (weights - estimate)
        squares = (misfit @ misfit + residual) * jnp.exp(-2 * log_sigma)
        prior = jnp.sum(norm.logpdf(weights, 0.0, scales))
        prior += norm.logpdf(log_sigma, np.log(spread), 1.0)
        return prior - 0.5 * squares - num_rows * log_sigma

    def draw(seed, num_draws):
        return conditionally_gaussian_draws(log_density, dim, [dim - 1], seed, num_draws)

    return BenchmarkPosterior(name, dim, description, log_density, draw)


def diabetes(data_dir: Path | None) -> BenchmarkPosterior:
    """Ten measurements of 442 patients."""
    del data_dir
    features, outcome = scikit_learn_table("diabetes", scaled=False)
    description = "linear regression on scikit-learn's diabetes, raw units"
    return linear_regression("diabetes_raw", description, features, outcome)


def uci_regression(name: str, table: str) -> Callable[[Path | None], BenchmarkPosterior]:
    """A builder of the regression on one of the UCI sets."""

    def build(data_dir: Path | None) -> BenchmarkPosterior:
        features, outcome = uci_table(table, data_dir)
        # A constant column would only repeat the intercept.
        features = features[:, features.std(axis=0) > 0]
        return linear_regression(
            name, f"linear regression on UCI {table}, raw units", features, outcome
        )

    return build


def logistic_regression(
    name: str,
    description: str,
    features: np.ndarray,
    labels: np.ndarray,
    scales: np.ndarray,
    easy: Reparametrisation | None = None,
) -> BenchmarkPosterior:
    """Bernoulli outcomes with logit b + wᵀx over (b, w), each N(0, scale²) a priori."""
    design = np.column_stack([np.ones(len(labels)), features])

    def log_density(x):
        logits = design @ x
        likelihood = jnp.sum(labels * logits - jnp.logaddexp(0.0, logits))
        return likelihood + jnp.sum(norm.logpdf(x, 0.0, scales))

    return BenchmarkPosterior(name, design.shape[1], description, log_density, easy=easy)


def breast_cancer(data_dir: Path | None) -> BenchmarkPosterior:
    """Standardised features, weights N(0, 2.5²)."""
    del data_dir
    features, labels = scikit_learn_table("breast_cancer")
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    return logistic_regression(
        "breast_cancer",
        "logistic regression on breast cancer, standardised",
        features,
        labels,
        np.full(features.shape[1] + 1, 2.5),
    )


def breast_cancer_raw(data_dir: Path | None) -> BenchmarkPosterior:
    """Raw features whose standard deviations reach from 0.003 to 570."""
    del data_dir
    features, labels = scikit_learn_table("breast_cancer")
    centre, spread = features.mean(axis=0), features.std(axis=0)

    def restore(z):
        weights = z[1:] / spread
        return jnp.concatenate([(z[0] - weights @ centre)[None], weights])

    return logistic_regression(
        "breast_cancer_raw",
        "logistic regression on breast cancer, raw units",
        features,
        labels,
        np.concatenate([[100.0], 2.5 / spread]),
        Reparametrisation(restore, lambda z: jnp.zeros((), z.dtype)),
    )


def autoregression(data_dir: Path | None) -> BenchmarkPosterior:
    """An AR(5) of 200 values about a level of 20, given the first five.

    y_t ~ N(a + Σ b_k y_{t−k}, σ²) over (a, b, log σ): a, b ~ N(0, 10²), σ ~ Cauchy⁺(2.5).
    """
    del data_dir
    rng = np.random.default_rng(5)
    coefficients, level = np.array([0.6, 0.2, -0.15, 0.15, 0.1]), 20.0
    series = np.full(300, level)
    for time in range(5, 300):
        past = series[time - 5 : time][::-1]
        series[time] = level + coefficients @ (past - level) + rng.normal(0.0, 0.8)
    series = series[100:]
    lags = [series[5 - k : 200 - k] for k in range(1, 6)]
    design = np.column_stack([np.ones(195), *lags])
    outcome = series[5:]

    def log_density(x):
        weights, log_sigma = x[:-1], x[-1]
        likelihood = jnp.sum(norm.logpdf(outcome, design @ weights, jnp.exp(log_sigma)))
        prior = jnp.sum(norm.logpdf(weights, 0.0, 10.0))
        return likelihood + prior + cauchy.logpdf(jnp.exp(log_sigma), 0.0, 2.5) + log_sigma

    def draw(seed, num_draws):
        return conditionally_gaussian_draws(
            log_density, 7, [6], seed, num_draws, widest=(-8.0, 8.0)
        )

    return BenchmarkPosterior("ar5", 7, "AR(5), 200 values about a level of 20", log_density, draw)
