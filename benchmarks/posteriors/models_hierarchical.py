"""Hierarchical models, in the centred form."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import cauchy, norm

from benchmarks.posteriors.exact import conditionally_gaussian_draws
from benchmarks.posteriors.posterior import (
    BenchmarkPosterior,
    Reparametrisation,
    double_precision,
)


def non_centred(mean: int, log_scale: int, group: slice) -> Reparametrisation:
    """Standardised group effects: x_group = x_mean + exp(x_log_scale) z_group."""

    def restore(z):
        return z.at[group].set(z[mean] + jnp.exp(z[log_scale]) * z[group])

    def log_jacobian(z):
        return len(z[group]) * z[log_scale]

    return Reparametrisation(restore, log_jacobian)


def half_normal_of_log(log_scale, spread: float):
    """Log density of log τ when τ ~ N⁺(0, spread²)."""
    return norm.logpdf(jnp.exp(log_scale), 0.0, spread) + log_scale


EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
STANDARD_ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
SCHOOLS = non_centred(0, 1, slice(2, 10))


def _schools_log_density(x):
    """Over (μ, log τ, θ): μ ~ N(0, 5²), τ ~ Cauchy⁺(5), θ ~ N(μ, τ²)."""
    mean, log_scale, effects = x[0], x[1], x[2:]
    prior = norm.logpdf(mean, 0.0, 5.0) + cauchy.logpdf(jnp.exp(log_scale), 0.0, 5.0) + log_scale
    prior += jnp.sum(norm.logpdf(effects, mean, jnp.exp(log_scale)))
    return prior + jnp.sum(norm.logpdf(EFFECTS, effects, STANDARD_ERRORS))


def _schools_non_centred_log_density(z):
    mean, log_scale, standardised = z[0], z[1], z[2:]
    prior = norm.logpdf(mean, 0.0, 5.0) + cauchy.logpdf(jnp.exp(log_scale), 0.0, 5.0) + log_scale
    prior += jnp.sum(norm.logpdf(standardised))
    effects = mean + jnp.exp(log_scale) * standardised
    return prior + jnp.sum(norm.logpdf(EFFECTS, effects, STANDARD_ERRORS))


def _draw_schools_non_centred(seed, num_draws):
    return conditionally_gaussian_draws(
        _schools_non_centred_log_density, 10, [1], seed, num_draws, widest=(-20.0, 10.0)
    )


def eight_schools(data_dir: Path | None) -> BenchmarkPosterior:
    """Centred: a funnel in (log τ, θ)."""
    del data_dir

    def draw(seed, num_draws):
        return _restored(SCHOOLS, _draw_schools_non_centred(seed, num_draws))

    return BenchmarkPosterior(
        "eight_schools_centred", 10, "eight schools, centred", _schools_log_density, draw
    )


def eight_schools_non_centred(data_dir: Path | None) -> BenchmarkPosterior:
    """Non-centred: nearly Gaussian but for log τ."""
    del data_dir
    return BenchmarkPosterior(
        "eight_schools_non_centred",
        10,
        "eight schools, non-centred",
        _schools_non_centred_log_density,
        _draw_schools_non_centred,
    )


def radon(data_dir: Path | None) -> BenchmarkPosterior:
    """Radon-like: 30 counties with 1 to 40 houses, intercepts by county, one slope.

    y ~ N(α_county + β floor, σ²), α ~ N(μ, τ²) over (μ, log τ, β, log σ, α): μ, β ~ N(0, 10²),
    τ, σ ~ N⁺(1).
    """
    del data_dir
    rng = np.random.default_rng(34)
    num_counties = 30
    sizes = np.maximum(1, np.round(40 / np.arange(1, num_counties + 1) ** 0.9)).astype(int)
    county = np.repeat(np.arange(num_counties), sizes)
    floor = (rng.random(len(county)) < 0.2).astype(np.float64)
    intercepts = rng.normal(1.5, 0.3, num_counties)
    outcome = intercepts[county] - 0.65 * floor + rng.normal(0.0, 0.75, len(county))
    easy = non_centred(0, 1, slice(4, None))
    dim = 4 + num_counties

    def log_density(x):
        mean, log_scale, slope, log_sigma, effects = x[0], x[1], x[2], x[3], x[4:]
        prior = norm.logpdf(mean, 0.0, 10.0) + norm.logpdf(slope, 0.0, 10.0)
        prior += half_normal_of_log(log_scale, 1.0) + half_normal_of_log(log_sigma, 1.0)
        prior += jnp.sum(norm.logpdf(effects, mean, jnp.exp(log_scale)))
        expected = effects[county] + slope * floor
        return prior + jnp.sum(norm.logpdf(outcome, expected, jnp.exp(log_sigma)))

    def draw(seed, num_draws):
        draws = conditionally_gaussian_draws(
            _pulled_back(log_density, easy), dim, [1, 3], seed, num_draws, widest=(-16.0, 4.0)
        )
        return _restored(easy, draws)

    return BenchmarkPosterior(
        "radon_centred", dim, "radon-like hierarchy of 30 counties, centred", log_density, draw
    )


def poisson_random_effects(data_dir: Path | None) -> BenchmarkPosterior:
    """Counts of 30 groups of 4, with one covariate.

    y ~ Poisson(exp(α_group + β x)), α ~ N(μ, τ²) over (μ, log τ, β, α): μ ~ N(0, 3²),
    τ ~ N⁺(1), β ~ N(0, 1).
    """
    del data_dir
    rng = np.random.default_rng(33)
    num_groups = 30
    group = np.repeat(np.arange(num_groups), 4)
    covariate = rng.normal(size=len(group))
    intercepts = rng.normal(0.5, 0.6, num_groups)
    counts = rng.poisson(np.exp(intercepts[group] + 0.4 * covariate)).astype(np.float64)

    def log_density(x):
        mean, log_scale, slope, effects = x[0], x[1], x[2], x[3:]
        prior = (
            norm.logpdf(mean, 0.0, 3.0) + norm.logpdf(slope) + half_normal_of_log(log_scale, 1.0)
        )
        prior += jnp.sum(norm.logpdf(effects, mean, jnp.exp(log_scale)))
        log_rates = effects[group] + slope * covariate
        return prior + jnp.sum(counts * log_rates - jnp.exp(log_rates))

    return BenchmarkPosterior(
        "poisson_centred",
        3 + num_groups,
        "Poisson regression with 30 random effects, centred",
        log_density,
        easy=non_centred(0, 1, slice(3, None)),
    )


def _pulled_back(log_density, easy: Reparametrisation):
    return lambda z: log_density(easy.restore(z)) + easy.log_jacobian(z)


def _restored(easy: Reparametrisation, draws: np.ndarray) -> np.ndarray:
    with double_precision():
        return np.asarray(jax.vmap(easy.restore)(jnp.asarray(draws)))
