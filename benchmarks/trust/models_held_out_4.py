"""Models that played no part in any choice: slopes of groups, bounds, edges, weak data."""

from collections.abc import Callable
from typing import Any

import numpy as np

import nvgd
from benchmarks.trust.model import Exact, NumPyroNUTS, TrustModel, in_numpyro, in_pymc

NUM_FIELDS, NUM_FEATURES = 12, 15


def _field_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Field, rain and covered share."""
    rng = np.random.default_rng(111)
    field, rain = np.repeat(np.arange(NUM_FIELDS), 8), rng.normal(size=8 * NUM_FIELDS)
    base, slope = 0.5 + 0.5 * rng.normal(size=NUM_FIELDS), 0.8 + 0.3 * rng.normal(size=NUM_FIELDS)
    mean = 1 / (1 + np.exp(-(base[field] + slope[field] * rain)))
    return field, rain, np.clip(rng.beta(10 * mean, 10 * (1 - mean)), 1e-3, 1 - 1e-3)


def _beta_slopes(*, is_centred: bool) -> Any:
    import pymc as pm

    field, rain, share = _field_data()
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 2, shape=2)
        spread = pm.HalfNormal("spread", 1, shape=2)
        precision = pm.Gamma("precision", 2, 0.1)
        if is_centred:
            own = pm.Normal("own", mean, spread, shape=(NUM_FIELDS, 2))
        else:
            z = pm.Normal("z", 0, 1, shape=(NUM_FIELDS, 2))
            own = pm.Deterministic("own", mean + spread * z)
        expected = pm.math.invlogit(own[field, 0] + own[field, 1] * rain)
        pm.Beta("share", mu=expected, nu=precision, observed=share)
    return model


def _sparse_linear() -> Any:
    import pymc as pm

    rng = np.random.default_rng(112)
    x = rng.normal(size=(60, NUM_FEATURES))
    y = x[:, :3] @ np.array([1.5, -1.0, 0.6]) + rng.normal(size=60)
    with pm.Model() as model:
        noise = pm.HalfNormal("noise", 2)
        width = pm.HalfStudentT("width", 3, 0.2)
        slab = pm.InverseGamma("slab", 2, 8)
        local = pm.HalfStudentT("local", 3, shape=NUM_FEATURES)
        z = pm.Normal("z", 0, 1, shape=NUM_FEATURES)
        shrunk = local * pm.math.sqrt(slab / (slab + width**2 * local**2))
        slopes = pm.Deterministic("slopes", z * width * shrunk)
        pm.Normal("y", pm.math.dot(x, slopes), noise, observed=y)
    return model


def _two_tests() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(113)
    prevalence, sensitivity = np.array([0.1, 0.4]), np.array([0.85, 0.92, 0.7])
    specificity = np.array([0.97, 0.9, 0.99])
    patterns = np.stack(np.meshgrid(*[[0, 1]] * 3, indexing="ij"), axis=-1).reshape(8, 3)
    sick = np.where(patterns == 1, sensitivity, 1 - sensitivity).prod(axis=1)
    healthy = np.where(patterns == 1, 1 - specificity, specificity).prod(axis=1)
    counts = np.stack([rng.multinomial(150, p * sick + (1 - p) * healthy) for p in prevalence])

    def model(patterns, counts):
        """Hui and Walter: three imperfect tests in two populations, and no gold standard."""
        prevalence = numpyro.sample("prevalence", dist.Beta(1, 1).expand([2]))
        sensitivity = numpyro.sample("sensitivity", dist.Uniform(0.5, 1).expand([3]))
        specificity = numpyro.sample("specificity", dist.Uniform(0.5, 1).expand([3]))
        sick = jnp.prod(jnp.where(patterns == 1, sensitivity, 1 - sensitivity), axis=1)
        healthy = jnp.prod(jnp.where(patterns == 1, 1 - specificity, specificity), axis=1)
        chances = prevalence[:, None] * sick + (1 - prevalence[:, None]) * healthy
        numpyro.sample("counts", dist.Multinomial(150, probs=chances), obs=counts)

    return model, patterns, counts


def _positive_parts() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(114)
    spectra = np.abs(rng.normal(size=(40, 6))) + 0.5
    mixed = spectra @ np.array([1.0, 0.3, 0.0, 0.0, 0.0, 0.05]) + 0.3 * rng.normal(size=40)

    def model(spectra, mixed):
        """Amounts that cannot be negative, most of them none: mass at the bound."""
        amounts = numpyro.sample("amounts", dist.HalfNormal(2).expand([6]).to_event(1))
        noise = numpyro.sample("noise", dist.HalfNormal(1))
        numpyro.sample("mixed", dist.Normal(spectra @ amounts, noise), obs=mixed)

    return model, spectra, mixed


def _log_floods(theta: dict[str, Any], xp: Any) -> Any:
    """Generalised extreme values of floods; their distribution ends where the parameters say."""
    rng = np.random.default_rng(115)
    floods = 3.0 + 0.8 * ((-np.log(rng.random(35))) ** 0.15 - 1) / -0.15
    location, log_scale, shape = theta["location"], theta["log_scale"], theta["shape"]
    inner = 1 + shape[..., None] * (floods - location[..., None]) / xp.exp(log_scale[..., None])
    tail = inner ** (-1 / shape[..., None])
    logs = -log_scale[..., None] - (1 + 1 / shape[..., None]) * xp.log(inner) - tail
    prior = -0.5 * (location / 10) ** 2 - 0.5 * (log_scale / 2) ** 2 - 0.5 * (shape / 0.3) ** 2
    return prior + xp.where(xp.all(inner > 0, axis=-1), xp.sum(logs, axis=-1), -xp.inf)


def _extremes() -> nvgd.Target:
    import jax.numpy as jnp

    def log_density(theta):
        return _log_floods(theta, jnp)

    example = {"location": 0.0, "log_scale": 0.0, "shape": 0.1}
    return nvgd.Target(log_density, example=example)


def _draw_extremes(rng: np.random.Generator, num: int) -> dict[str, np.ndarray]:
    """Draws from a fine grid, one slice of the location at a time."""
    axes = {
        "location": np.linspace(2, 5, 151),
        "log_scale": np.linspace(-1.6, 1.4, 151),
        "shape": np.linspace(-1.3, 1.0, 160),
    }
    slices = []
    with np.errstate(all="ignore"):
        for location in axes["location"]:
            log_scale, shape = np.meshgrid(axes["log_scale"], axes["shape"], indexing="ij")
            theta = {"location": np.full_like(shape, location), "log_scale": log_scale}
            slices.append(_log_floods({**theta, "shape": shape}, np))
    logs = np.nan_to_num(np.stack(slices), nan=-np.inf, neginf=-np.inf)
    shares = np.exp(logs - logs.max())
    places = (np.arange(num) + 0.5) / num * shares.sum()
    chosen = np.searchsorted(np.cumsum(shares), rng.permutation(places))
    draws = {}
    for (name, axis), index in zip(
        axes.items(), np.unravel_index(chosen, shares.shape), strict=True
    ):
        width = axis[1] - axis[0]
        draws[name] = axis[index] + width * rng.uniform(-0.5, 0.5, size=num)
    return draws


def _enzyme() -> Callable[[dict[str, Any]], Any]:
    """Michaelis and Menten's law far below saturation: only the ratio of both is determined."""
    import jax.numpy as jnp

    rng = np.random.default_rng(116)
    substrate = np.repeat([1e-6, 2e-6, 5e-6, 1e-5, 2e-5], 4)
    speed = 150 + 8000 * substrate / (4e-5 + substrate) + 60 * rng.normal(size=20)

    def log_density(theta):
        most, half = jnp.exp(theta["log_most"]), jnp.exp(theta["log_half"])
        expected = theta["base"] + most * substrate / (half + substrate)
        noise = jnp.exp(theta["log_noise"])
        prior = -0.5 * ((theta["log_most"] - 9) / 2) ** 2
        prior -= 0.5 * ((theta["log_half"] + 10) / 2) ** 2
        prior -= 0.5 * (theta["base"] / 500) ** 2 + 0.5 * ((theta["log_noise"] - 4) / 2) ** 2
        residuals = (speed - expected) / noise
        return prior - 0.5 * jnp.sum(residuals**2) - len(speed) * theta["log_noise"]

    return log_density


ENZYME = {"base": 0.0, "log_most": 0.0, "log_half": 0.0, "log_noise": 0.0}


def _enzyme_in_numpyro() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    log_density = _enzyme()

    def model():
        flat = dist.ImproperUniform(dist.constraints.real, (), ())
        theta = {name: numpyro.sample(name, flat) for name in ENZYME}
        numpyro.factor("density", log_density(theta))

    return (model,)


HELD_OUT_4 = (
    in_pymc(
        "beta_slopes",
        "beta regression with slopes of fields, centred",
        lambda: _beta_slopes(is_centred=True),
        lambda: _beta_slopes(is_centred=False),
    ),
    in_pymc("sparse_linear", "regularised horseshoe of Student-t scales, linear", _sparse_linear),
    in_numpyro("two_tests", "three imperfect tests in two populations", _two_tests),
    in_numpyro("positive_parts", "amounts that cannot be negative, most are none", _positive_parts),
    TrustModel(
        "extremes",
        "floods, generalised extreme values, density with an edge",
        _extremes,
        Exact(_draw_extremes),
    ),
    TrustModel(
        "enzyme",
        "Michaelis-Menten far below saturation, raw units",
        lambda: nvgd.Target(_enzyme(), example=ENZYME),
        NumPyroNUTS(_enzyme_in_numpyro),
    ),
)
