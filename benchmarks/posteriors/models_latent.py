"""Posteriors of latent series and fields, and of a mixture's parameters."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid
from jax.scipy.stats import norm

from benchmarks.posteriors.models_hierarchical import half_normal_of_log
from benchmarks.posteriors.posterior import BenchmarkPosterior, Reparametrisation


def stochastic_volatility(data_dir: Path | None) -> BenchmarkPosterior:
    """Returns y_t ~ N(0, e^{h_t}) of 60 days, with h_t an AR(1) about μ of persistence φ.

    Over (μ, logit (1 + φ)/2, log σ, h), h centred: μ ~ N(0, 2²), (1 + φ)/2 ~ Beta(20, 1.5),
    σ ~ N⁺(0.5).
    """
    del data_dir
    rng = np.random.default_rng(60)
    length, level, persistence, noise = 60, -0.5, 0.95, 0.35
    states = np.empty(length)
    states[0] = level + noise / np.sqrt(1 - persistence**2) * rng.normal()
    for time in range(1, length):
        states[time] = level + persistence * (states[time - 1] - level) + noise * rng.normal()
    returns = np.exp(states / 2) * rng.normal(size=length)

    def scales(x):
        """Persistence, and the standard deviations of the first and the other innovations."""
        persistence, sigma = jnp.tanh(x[1] / 2), jnp.exp(x[2])
        # 1 − φ² = 4 s (1 − s) without its cancellation near φ = 1.
        first = jnp.exp(x[2] - 0.5 * (jnp.log(4.0) + log_sigmoid(x[1]) + log_sigmoid(-x[1])))
        return persistence, first, sigma

    def log_density(x):
        persistence, first, sigma = scales(x)
        deviations = x[3:] - x[0]
        prior = norm.logpdf(x[0], 0.0, 2.0) + half_normal_of_log(x[2], 0.5)
        prior += 20 * log_sigmoid(x[1]) + 1.5 * log_sigmoid(-x[1])
        prior += norm.logpdf(deviations[0], 0.0, first)
        prior += jnp.sum(norm.logpdf(deviations[1:], persistence * deviations[:-1], sigma))
        # Normal log density written out: e^{-h} y², not the ratio of two tiny numbers.
        return prior - 0.5 * jnp.sum(x[3:] + returns**2 * jnp.exp(-x[3:]))

    def restore(z):
        persistence, first, sigma = scales(z)

        def advance(deviation, innovation):
            deviation = persistence * deviation + sigma * innovation
            return deviation, deviation

        start = first * z[3]
        _, deviations = jax.lax.scan(advance, start, z[4:])
        return jnp.concatenate([z[:3], z[0] + jnp.append(start, deviations)])

    def log_jacobian(z):
        _, first, _ = scales(z)
        return jnp.log(first) + (length - 1) * z[2]

    return BenchmarkPosterior(
        "stochastic_volatility",
        3 + length,
        "stochastic volatility, 60 latent states, centred",
        log_density,
        easy=Reparametrisation(restore, log_jacobian),
    )


def _process() -> tuple[np.ndarray, np.ndarray]:
    """Distances between the inputs, and counts about a smooth log rate."""
    rng = np.random.default_rng(30)
    inputs = np.linspace(0.0, 1.0, 30)
    log_rates = 1.0 + np.sin(6 * inputs) + 0.5 * np.cos(14 * inputs)
    counts = rng.poisson(np.exp(log_rates)).astype(np.float64)
    return np.abs(inputs[:, None] - inputs), counts


def _covariance_factor(log_length, log_amplitude, distances):
    """Cholesky factor of the Matérn-3/2 covariance.

    The nugget of a thousandth of the variance keeps it invertible in single precision.
    """
    scaled = np.sqrt(3.0) * distances * jnp.exp(-log_length)
    correlation = (1 + scaled) * jnp.exp(-scaled) + 1e-3 * np.eye(len(distances))
    return jnp.exp(log_amplitude) * jnp.linalg.cholesky(correlation)


def _process_prior(x):
    """Mean ~ N(0, 2²), log length ~ N(log 0.2, 0.5²), log amplitude ~ N(0, 0.5²)."""
    return (
        norm.logpdf(x[0], 0.0, 2.0)
        + norm.logpdf(x[1], np.log(0.2), 0.5)
        + norm.logpdf(x[2], 0.0, 0.5)
    )


def _approximate_conditional(x, distances, counts):
    """Mean and Cholesky factor of f given the hyperparameters, if log(y + ½) were normal about f.

    Its variance 1/(y + ½) is the Poisson likelihood's. In coordinates standardised by both, NUTS
    meets next to no curvature; whitened by the prior alone, its steps diverge.
    """
    factor = _covariance_factor(x[1], x[2], distances)
    covariance = factor @ factor.T
    observed = jnp.linalg.cholesky(covariance + np.diag(1 / (counts + 0.5)))
    gain = jax.scipy.linalg.cho_solve((observed, True), covariance)
    mean = x[0] + gain.T @ (np.log(counts + 0.5) - x[0])
    return mean, jnp.linalg.cholesky(covariance - covariance @ gain)


def _standardised_process(distances, counts) -> Reparametrisation:
    """From values standardised by the approximate conditional to f."""

    def restore(z):
        mean, factor = _approximate_conditional(z, distances, counts)
        return z.at[3:].set(mean + factor @ z[3:])

    def log_jacobian(z):
        _, factor = _approximate_conditional(z, distances, counts)
        return jnp.sum(jnp.log(jnp.diagonal(factor)))

    return Reparametrisation(restore, log_jacobian)


def gaussian_process(data_dir: Path | None) -> BenchmarkPosterior:
    """Counts y ~ Poisson(e^f) at 30 inputs over (mean, log length, log amplitude, f)."""
    del data_dir
    distances, counts = _process()

    def log_density(x):
        factor = _covariance_factor(x[1], x[2], distances)
        whitened = jax.scipy.linalg.solve_triangular(factor, x[3:] - x[0], lower=True)
        prior = _process_prior(x) - 0.5 * whitened @ whitened
        prior -= jnp.sum(jnp.log(jnp.diagonal(factor)))
        return prior + jnp.sum(counts * x[3:] - jnp.exp(x[3:]))

    return BenchmarkPosterior(
        "gaussian_process_centred",
        3 + len(counts),
        "Gaussian process with 30 latent values and Poisson counts",
        log_density,
        easy=_standardised_process(distances, counts),
    )


def gaussian_process_whitened(data_dir: Path | None) -> BenchmarkPosterior:
    """The same over (mean, log length, log amplitude, z) with f = mean + L z."""
    del data_dir
    distances, counts = _process()
    easy = _standardised_process(distances, counts)

    def log_density(x):
        values = x[0] + _covariance_factor(x[1], x[2], distances) @ x[3:]
        prior = _process_prior(x) - 0.5 * x[3:] @ x[3:]
        return prior + jnp.sum(counts * values - jnp.exp(values))

    def restore(z):
        x = easy.restore(z)
        factor = _covariance_factor(x[1], x[2], distances)
        whitened = jax.scipy.linalg.solve_triangular(factor, x[3:] - x[0], lower=True)
        return x.at[3:].set(whitened)

    def log_jacobian(z):
        factor = _covariance_factor(z[1], z[2], distances)
        return easy.log_jacobian(z) - jnp.sum(jnp.log(jnp.diagonal(factor)))

    return BenchmarkPosterior(
        "gaussian_process_whitened",
        3 + len(counts),
        "the same Gaussian process, whitened",
        log_density,
        easy=Reparametrisation(restore, log_jacobian),
    )


def mixture_model(data_dir: Path | None) -> BenchmarkPosterior:
    """200 values of two overlapping normals over (μ₁, log(μ₂ − μ₁), log σ₁, log σ₂, logit w).

    μ₁ ~ N(0, 2²), μ₂ − μ₁ ~ N⁺(4), σ ~ N⁺(2), w uniform.
    """
    del data_dir
    rng = np.random.default_rng(2)
    is_first = rng.random(200) < 0.6
    values = np.where(is_first, rng.normal(-1.0, 1.0, 200), rng.normal(1.5, 0.7, 200))

    def log_density(x):
        means = jnp.stack([x[0], x[0] + jnp.exp(x[1])])
        log_weights = jnp.stack([log_sigmoid(x[4]), log_sigmoid(-x[4])])
        components = norm.logpdf(values[:, None], means, jnp.exp(x[2:4])) + log_weights
        prior = norm.logpdf(x[0], 0.0, 2.0) + half_normal_of_log(x[1], 4.0)
        prior += half_normal_of_log(x[2], 2.0) + half_normal_of_log(x[3], 2.0)
        prior += log_sigmoid(x[4]) + log_sigmoid(-x[4])
        return prior + jnp.sum(jax.nn.logsumexp(components, axis=1))

    return BenchmarkPosterior(
        "mixture_model", 5, "parameters of a mixture of two normals, 200 values", log_density
    )
