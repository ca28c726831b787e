"""Three models whose data can be simulated, with exact posterior moments by quadrature."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.stats as stats
import numpy as np

import nvgd

FEATURES = jax.random.normal(jax.random.key(7), (30, 2))
NUM_GROUPS, PER_GROUP = 4, 5
NUM_GRID = 161


class Moments(NamedTuple):
    """Exact means and standard deviations, in the order of `Posterior.summary`."""

    means: np.ndarray
    sds: np.ndarray


class Simulated(NamedTuple):
    """A model from which data can be simulated, and whose posterior moments are known."""

    simulate: Callable[[Any], tuple[dict[str, Any], Any]]
    log_density: Callable[..., Any]
    example: dict[str, Any]
    moments: Callable[[Any], Moments]
    """Of the posterior given the data, by quadrature."""

    def target(self, data: Any) -> nvgd.Target:
        """The posterior given the data."""
        log_density = jax.tree_util.Partial(self.log_density, data=data)
        return nvgd.Target(log_density, example=self.example)


def _on_grid(log_density: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> tuple[np.ndarray, ...]:
    """Two coordinates and the weights of a grid that was narrowed to where the density is."""
    centre, width = np.zeros(2), np.full(2, 9.0)
    for _ in range(6):
        axes = [np.linspace(c - w, c + w, NUM_GRID) for c, w in zip(centre, width, strict=True)]
        first, second = (grid.ravel() for grid in np.meshgrid(*axes, indexing="ij"))
        logs = np.asarray(log_density(first, second), np.float64)
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        points = np.stack([first, second])
        centre = points @ weights
        sds = np.sqrt((points - centre[:, None]) ** 2 @ weights)
        width = np.minimum(width, np.maximum(8 * sds, 4 * width / NUM_GRID))
    return first, second, weights


def _of(
    columns: list[np.ndarray], weights: np.ndarray, within: float | np.ndarray = 0.0
) -> Moments:
    """Moments of columns over a grid; `within` is the mean variance at its points."""
    values = np.stack(columns)
    means = values @ weights
    return Moments(means, np.sqrt((values - means[:, None]) ** 2 @ weights + within))


def _normal(key: Any) -> tuple[dict[str, Any], Any]:
    first, second = jax.random.split(key)
    mean, log_scale = jax.random.normal(first, (2,))
    outcome = mean + jnp.exp(log_scale) * jax.random.normal(second, (10,))
    return {"mean": mean, "log_scale": log_scale}, outcome


def _normal_density(at: dict[str, Any], data: Any) -> Any:
    prior = stats.norm.logpdf(at["mean"]) + stats.norm.logpdf(at["log_scale"])
    return prior + jnp.sum(stats.norm.logpdf(data, at["mean"], jnp.exp(at["log_scale"])))


def _normal_moments(data: Any) -> Moments:
    outcome = np.asarray(data, np.float64)
    size, centre, scatter = len(outcome), outcome.mean(), outcome.var() * len(outcome)

    def log_density(mean, log_scale):
        squares = scatter + size * (mean - centre) ** 2
        prior = -0.5 * (mean**2 + log_scale**2)
        return prior - size * log_scale - 0.5 * squares * np.exp(-2 * log_scale)

    mean, log_scale, weights = _on_grid(log_density)
    return _of([log_scale, mean], weights)


def _logistic(key: Any) -> tuple[dict[str, Any], Any]:
    first, second = jax.random.split(key)
    slopes = 1.5 * jax.random.normal(first, (2,))
    return {"slopes": slopes}, jax.random.bernoulli(second, jax.nn.sigmoid(FEATURES @ slopes))


def _logistic_density(at: dict[str, Any], data: Any) -> Any:
    logits = jnp.where(data, 1.0, -1.0) * (FEATURES @ at["slopes"])
    prior = jnp.sum(stats.norm.logpdf(at["slopes"], 0.0, 1.5))
    return prior + jnp.sum(jax.nn.log_sigmoid(logits))


def _logistic_moments(data: Any) -> Moments:
    signs = np.where(np.asarray(data), 1.0, -1.0)[:, None] * np.asarray(FEATURES, np.float64)

    def log_density(first, second):
        logits = signs @ np.stack([first, second])
        prior = -0.5 * (first**2 + second**2) / 1.5**2
        return prior - np.sum(np.logaddexp(0, -logits), axis=0)

    first, second, weights = _on_grid(log_density)
    return _of([first, second], weights)


def _groups(key: Any) -> tuple[dict[str, Any], Any]:
    keys = jax.random.split(key, 4)
    mean, log_scale = jax.random.normal(keys[0]), 0.7 * jax.random.normal(keys[1])
    effects = mean + jnp.exp(log_scale) * jax.random.normal(keys[2], (NUM_GROUPS,))
    outcome = effects[:, None] + jax.random.normal(keys[3], (NUM_GROUPS, PER_GROUP))
    return {"mean": mean, "log_scale": log_scale, "effects": effects}, outcome


def _groups_density(at: dict[str, Any], data: Any) -> Any:
    prior = stats.norm.logpdf(at["mean"]) + stats.norm.logpdf(at["log_scale"], 0.0, 0.7)
    prior += jnp.sum(stats.norm.logpdf(at["effects"], at["mean"], jnp.exp(at["log_scale"])))
    return prior + jnp.sum(stats.norm.logpdf(data, at["effects"][:, None]))


def _groups_moments(data: Any) -> Moments:
    """The effects are integrated out: given mean and scale, they are normal."""
    centres = np.asarray(data, np.float64).mean(axis=1)[:, None]

    def log_density(mean, log_scale):
        variances = np.exp(2 * log_scale) + 1 / PER_GROUP
        likelihood = -0.5 * np.sum((centres - mean) ** 2 / variances + np.log(variances), axis=0)
        return likelihood - 0.5 * mean**2 - 0.5 * (log_scale / 0.7) ** 2

    mean, log_scale, weights = _on_grid(log_density)
    share = PER_GROUP / (PER_GROUP + np.exp(-2 * log_scale))
    effects = share * centres + (1 - share) * mean
    within = np.array([0.0, 0.0] + [share @ weights / PER_GROUP] * NUM_GROUPS)
    return _of([log_scale, mean, *effects], weights, within)


MODELS = {
    "mean and scale": Simulated(
        _normal, _normal_density, {"mean": 0.0, "log_scale": 0.0}, _normal_moments
    ),
    "logistic": Simulated(
        _logistic, _logistic_density, {"slopes": jnp.zeros(2)}, _logistic_moments
    ),
    "centred groups": Simulated(
        _groups,
        _groups_density,
        {"mean": 0.0, "log_scale": 0.0, "effects": jnp.zeros(NUM_GROUPS)},
        _groups_moments,
    ),
}
