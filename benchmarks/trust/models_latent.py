"""Latent processes, simplexes, and densities with several modes."""

from typing import Any

import numpy as np

import nvgd
from benchmarks.trust.model import Exact, TrustModel, in_numpyro

WEIGHTS_1D, MEANS_1D, SDS_1D = np.array([0.3, 0.7]), np.array([-4.0, 4.0]), np.array([0.5, 1.0])
WEIGHTS_5D = np.array([0.5, 0.3, 0.2])


def _walk_data() -> np.ndarray:
    rng = np.random.default_rng(100)
    return np.cumsum(0.3 * rng.normal(size=100)) + 0.5 * rng.normal(size=100)


def _random_walk() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    def model(outcome):
        scale = numpyro.sample("scale", dist.HalfNormal(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        level = numpyro.sample("level", dist.GaussianRandomWalk(scale, num_steps=len(outcome)))
        numpyro.sample("outcome", dist.Normal(level, sigma), obs=outcome)

    return model, _walk_data()


def _random_walk_easy() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(outcome):
        scale = numpyro.sample("scale", dist.HalfNormal(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        standard = dist.Normal(0, 1).expand([len(outcome)]).to_event(1)
        steps = numpyro.sample("steps", standard)
        level = numpyro.deterministic("level", scale * jnp.cumsum(steps))
        numpyro.sample("outcome", dist.Normal(level, sigma), obs=outcome)

    return model, _walk_data()


def _gp() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(43)
    place = np.linspace(0, 10, 40)
    counts = rng.poisson(np.exp(1.0 + np.sin(place)))

    def model(place, counts):
        amplitude = numpyro.sample("amplitude", dist.HalfNormal(1))
        length = numpyro.sample("length", dist.InverseGamma(5, 5))
        intercept = numpyro.sample("intercept", dist.Normal(0, 2))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([len(place)]).to_event(1))
        # Matérn 3/2.
        scaled = jnp.sqrt(3.0) * jnp.abs(place[:, None] - place) / length
        kernel = (1 + scaled) * jnp.exp(-scaled) + 1e-5 * jnp.eye(len(place))
        f = numpyro.deterministic("f", amplitude * (jnp.linalg.cholesky(kernel) @ z))
        numpyro.sample("count", dist.Poisson(jnp.exp(intercept + f)), obs=counts)

    return model, place, counts


def _simplex() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(34)
    shares = rng.dirichlet(15 * np.array([0.5, 0.3, 0.15, 0.05]), size=10)
    totals = rng.integers(8, 40, size=10)
    counts = np.stack([rng.multinomial(n, share) for n, share in zip(totals, shares, strict=True)])

    def model(totals, counts):
        base = numpyro.sample("base", dist.Dirichlet(np.ones(4)))
        concentration = numpyro.sample("concentration", dist.Gamma(2, 0.1))
        with numpyro.plate("region", len(totals)):
            share = numpyro.sample("share", dist.Dirichlet(concentration * base))
            numpyro.sample("counts", dist.Multinomial(totals, share), obs=counts)

    return model, totals, counts


def _components(rng: np.random.Generator, num: int, weights: np.ndarray) -> np.ndarray:
    """Shuffled components, each as often as its weight says, so that the shares have no error."""
    return rng.permutation(np.repeat(np.arange(len(weights)), np.round(num * weights).astype(int)))


def _mixture_1d() -> nvgd.Target:
    import jax
    import jax.numpy as jnp

    def log_density(x):
        terms = jnp.log(WEIGHTS_1D / SDS_1D) - 0.5 * ((x[0] - MEANS_1D) / SDS_1D) ** 2
        return jax.nn.logsumexp(terms)

    return nvgd.Target(log_density, dim=1)


def _draw_mixture_1d(rng: np.random.Generator, num: int) -> dict[str, np.ndarray]:
    which = _components(rng, num, WEIGHTS_1D)
    return {"x": (MEANS_1D[which] + SDS_1D[which] * rng.normal(size=num))[:, None]}


def _centres_5d() -> np.ndarray:
    """Three points at distance 9 from each other, around the origin, in a random plane."""
    angles = 2 * np.pi * np.arange(3) / 3
    corners = 9 / 3**0.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    plane, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(5, 2)))
    return corners @ plane.T


def _three_gaussians_5d() -> nvgd.Target:
    import jax
    import jax.numpy as jnp

    centres = _centres_5d()

    def log_density(x):
        return jax.nn.logsumexp(jnp.log(WEIGHTS_5D) - 0.5 * jnp.sum((x - centres) ** 2, axis=1))

    return nvgd.Target(log_density, dim=5)


def _draw_three_gaussians_5d(rng: np.random.Generator, num: int) -> dict[str, np.ndarray]:
    which = _components(rng, num, WEIGHTS_5D)
    return {"x": _centres_5d()[which] + rng.normal(size=(num, 5))}


LATENT = (
    in_numpyro("random_walk", "local level, centred", _random_walk, _random_walk_easy),
    in_numpyro("gp", "counts on a latent Gaussian process", _gp),
    in_numpyro("simplex", "shares of ten regions, Dirichlet", _simplex),
    TrustModel("mixture_1d", "two normals of unequal weight", _mixture_1d, Exact(_draw_mixture_1d)),
    TrustModel(
        "three_gaussians_5d",
        "three normals, nine sd apart",
        _three_gaussians_5d,
        Exact(_draw_three_gaussians_5d),
    ),
)
