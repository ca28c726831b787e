"""Curved and multimodal densities in plain JAX, a mixture, a count series, and sparse effects."""

from typing import Any

import numpy as np

import nvgd
from benchmarks.trust.model import Exact, TrustModel, in_numpyro

# Two clusters of observations with Cauchy errors.
CLUSTERS = np.array([-3.2, -2.7, -3.0, -2.4, 3.3, 2.9, 2.6])
CURVATURE, NUM_BRANCHES, LENGTH = 2.0, 3, 3


def _rosenbrock() -> nvgd.Target:
    """The hybrid Rosenbrock density of Pagani, Wiegand and Nadarajah (2022), in ten dimensions."""
    import jax.numpy as jnp

    def log_density(position):
        first, rest = position["first"], position["rest"]
        before = jnp.concatenate([jnp.full((NUM_BRANCHES, 1), first), rest[:, :-1]], axis=1)
        squares = jnp.sum((rest - before**2) ** 2)
        return -0.5 * (first - 1) ** 2 - CURVATURE * squares

    example = {"first": jnp.zeros(()), "rest": jnp.zeros((NUM_BRANCHES, LENGTH))}
    return nvgd.Target(log_density, example=example)


def _draw_rosenbrock(rng: np.random.Generator, num: int) -> dict[str, np.ndarray]:
    first = 1 + rng.normal(size=num)
    before, columns = np.repeat(first[:, None], NUM_BRANCHES, axis=1), []
    for _ in range(LENGTH):
        before = before**2 + rng.normal(size=before.shape) / np.sqrt(2 * CURVATURE)
        columns.append(before)
    return {"first": first, "rest": np.stack(columns, axis=2)}


def _log_clusters(location: Any, log_scale: Any, log1p: Any, exp: Any) -> Any:
    """Cauchy errors, location ~ N(0, 5²), log scale ~ N(0, 1)."""
    total = -0.5 * (location / 5) ** 2 - 0.5 * log_scale**2
    for each in CLUSTERS:
        total = total - log_scale - log1p(((each - location) * exp(-log_scale)) ** 2)
    return total


def _clusters() -> nvgd.Target:
    import jax.numpy as jnp

    def log_density(position):
        return _log_clusters(position["location"], position["log_scale"], jnp.log1p, jnp.exp)

    return nvgd.Target(log_density, example={"location": 0.0, "log_scale": 0.0})


def _draw_clusters(rng: np.random.Generator, num: int) -> dict[str, np.ndarray]:
    """Draws from a fine grid."""
    location, log_scale = np.linspace(-12, 12, 1201), np.linspace(-5, 5, 801)
    grid = np.meshgrid(location, log_scale, indexing="ij")
    logs = _log_clusters(*grid, np.log1p, np.exp)
    shares = np.exp(logs - logs.max()).ravel()
    chosen = np.searchsorted(np.cumsum(shares / shares.sum()), (np.arange(num) + 0.5) / num)
    chosen = rng.permutation(chosen)
    jitter = rng.uniform(-0.5, 0.5, size=(2, num)) * np.array([[0.02], [0.0125]])
    return {
        "location": grid[0].ravel()[chosen] + jitter[0],
        "log_scale": grid[1].ravel()[chosen] + jitter[1],
    }


def _mixture_3() -> tuple[Any, ...]:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(75)
    centre, scale = np.array([-2.5, 0.0, 3.0]), np.array([0.5, 0.9, 0.7])
    which = rng.choice(3, size=150, p=[0.3, 0.3, 0.4])
    outcome = centre[which] + scale[which] * rng.normal(size=150)

    def model(outcome):
        weights = numpyro.sample("weights", dist.Dirichlet(2 * np.ones(3)))
        ordered = dist.TransformedDistribution(
            dist.Normal(0, 3).expand([3]), dist.transforms.OrderedTransform()
        )
        means = numpyro.sample("means", ordered)
        scales = numpyro.sample("scales", dist.LogNormal(-0.5, 0.5).expand([3]).to_event(1))
        logs = dist.Normal(means, scales).log_prob(outcome[:, None]) + jnp.log(weights)
        numpyro.factor("outcomes", jnp.sum(jax.nn.logsumexp(logs, axis=1)))

    return model, outcome


def _series() -> np.ndarray:
    rng = np.random.default_rng(76)
    level = [0.0]
    for noise in rng.normal(size=59):
        level.append(0.85 * level[-1] + 0.35 * noise)
    return rng.poisson(np.exp(1.2 + np.array(level)))


def _count_series(*, is_centred: bool) -> tuple[Any, ...]:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(counts):
        base = numpyro.sample("base", dist.Normal(1, 1))
        persistence = numpyro.sample("persistence", dist.Beta(4, 2))
        scale = numpyro.sample("scale", dist.HalfCauchy(0.5))
        first = scale / jnp.sqrt(1 - persistence**2)
        normal = dist.Normal(0, 1).expand([len(counts)]).to_event(1)
        if is_centred:
            level = numpyro.sample(
                "level", dist.ImproperUniform(normal.support, (), normal.event_shape)
            )
            steps = (level[1:] - persistence * level[:-1]) / scale
            standard = jnp.concatenate([level[:1] / first, steps])
            volume = jnp.log(first) + (len(counts) - 1) * jnp.log(scale)
            numpyro.factor("prior", normal.log_prob(standard) - volume)
        else:
            z = numpyro.sample("z", normal)

            def step(before, noise):
                after = persistence * before + scale * noise
                return after, after

            _, rest = jax.lax.scan(step, first * z[0], z[1:])
            level = numpyro.deterministic("level", jnp.append(first * z[0], rest))
        numpyro.sample("counts", dist.Poisson(jnp.exp(base + level)), obs=counts)

    return model, _series()


def _sparse_logit() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(77)
    features = rng.normal(size=(120, 12))
    logits = features[:, :2] @ np.array([1.8, -1.2])
    answer = (rng.random(120) < 1 / (1 + np.exp(-logits))).astype(int)

    def model(features, answer):
        # Regularised horseshoe of Piironen and Vehtari (2017), with a slab of width 2.
        num = features.shape[1]
        tau = numpyro.sample("tau", dist.HalfCauchy(0.2))
        local = numpyro.sample("local", dist.HalfCauchy(1).expand([num]).to_event(1))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([num]).to_event(1))
        width = tau * local
        slopes = numpyro.deterministic("slopes", z * width / jnp.sqrt(1 + width**2 / 4))
        numpyro.sample("answer", dist.Bernoulli(logits=features @ slopes), obs=answer)

    return model, features, answer


SHAPES = (
    TrustModel("rosenbrock", "hybrid Rosenbrock", _rosenbrock, Exact(_draw_rosenbrock)),
    TrustModel("clusters", "Cauchy errors, two clusters", _clusters, Exact(_draw_clusters)),
    in_numpyro("mixture_3", "three normals with ordered means", _mixture_3),
    in_numpyro(
        "count_series",
        "counts on a latent autoregression, centred",
        lambda: _count_series(is_centred=True),
        lambda: _count_series(is_centred=False),
    ),
    in_numpyro("sparse_logit", "regularised horseshoe, logistic", _sparse_logit),
)
