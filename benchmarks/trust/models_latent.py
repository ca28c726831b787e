"""Latent processes, simplexes, and densities with several modes."""

import dataclasses
from typing import Any

import numpy as np

import nvgd
from benchmarks.trust.model import Exact, TrustModel, in_numpyro

WEIGHTS_1D, MEANS_1D, SDS_1D = np.array([0.3, 0.7]), np.array([-4.0, 4.0]), np.array([0.5, 1.0])
WEIGHTS_3 = np.array([0.5, 0.3, 0.2])


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


@dataclasses.dataclass(frozen=True)
class _Normals:
    """Isotropic normals at distance nine from each other, around the origin, in a random plane."""

    dim: int
    weights: np.ndarray
    scales: np.ndarray

    def centres(self) -> np.ndarray:
        num = len(self.weights)
        angles = 2 * np.pi * np.arange(num) / num
        corners = 4.5 / np.sin(np.pi / num) * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        plane, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(self.dim, 2)))
        return corners @ plane.T

    def target(self) -> nvgd.Target:
        import jax
        import jax.numpy as jnp

        centres, logs = self.centres(), np.log(self.weights) - self.dim * np.log(self.scales)

        def log_density(x):
            squares = jnp.sum((x - centres) ** 2, axis=1) / self.scales**2
            return jax.nn.logsumexp(logs - 0.5 * squares)

        return nvgd.Target(log_density, dim=self.dim)

    def draw(self, rng: np.random.Generator, num: int) -> dict[str, np.ndarray]:
        which = _components(rng, num, self.weights)
        noise = rng.normal(size=(num, self.dim))
        return {"x": self.centres()[which] + self.scales[which, None] * noise}


THREE_5D = _Normals(5, WEIGHTS_3, np.ones(3))
TWO_20D = _Normals(20, WEIGHTS_1D, SDS_1D)
THREE_50D = _Normals(50, WEIGHTS_3, np.array([1.0, 0.6, 0.8]))

LATENT = (
    in_numpyro("random_walk", "local level, centred", _random_walk, _random_walk_easy),
    in_numpyro("gp", "counts on a latent Gaussian process", _gp),
    in_numpyro("simplex", "shares of ten regions, Dirichlet", _simplex),
    TrustModel("mixture_1d", "two normals of unequal weight", _mixture_1d, Exact(_draw_mixture_1d)),
    TrustModel(
        "three_gaussians_5d",
        "three normals, nine sd apart",
        THREE_5D.target,
        Exact(THREE_5D.draw),
    ),
    TrustModel("two_20d", "two normals, unequal widths", TWO_20D.target, Exact(TWO_20D.draw)),
    TrustModel(
        "three_50d", "three normals, unequal widths", THREE_50D.target, Exact(THREE_50D.draw)
    ),
)
