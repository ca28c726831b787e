"""The three targets, and the distance of a sample from them."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

import nvgd
from nvgd.densities import Funnel, Gaussian
from nvgd.experiments import covertype
from nvgd.metrics import Reference

NUM_ROWS = 20_000
NUM_REFERENCE = 2000


@dataclasses.dataclass(frozen=True)
class BenchmarkTarget:
    """A log density, reference draws, and the length of a run."""

    name: str
    dim: int
    log_density: Callable[[jax.Array], jax.Array]
    reference: np.ndarray
    exact: np.ndarray
    """Further draws, which show the energy distance of exact samples."""
    num_particles: int
    num_steps: int

    @functools.cached_property
    def _measure(self) -> tuple[np.ndarray, np.ndarray, Reference]:
        mean, sd = self.reference.mean(axis=0), self.reference.std(axis=0)
        return mean, sd, Reference(jnp.asarray((self.reference - mean) / sd, jnp.float32))

    def energy_distance(self, draws: np.ndarray) -> float:
        """In units of the target's own standard deviations; infinite if not finite."""
        mean, sd, reference = self._measure
        draws = (np.asarray(draws, np.float64) - mean) / sd
        if not np.all(np.isfinite(draws)):
            return np.inf
        return float(reference.energy_distance(jnp.asarray(draws, jnp.float32)))

    @functools.cached_property
    def level(self) -> float:
        """One and a half times the mean energy distance of exact samples of `num_particles`."""
        size = self.num_particles
        parts = [self.exact[i : i + size] for i in range(0, len(self.exact) - size + 1, size)]
        return 1.5 * float(np.mean([self.energy_distance(part) for part in parts]))


def load(number: int, data_dir: Path | None) -> BenchmarkTarget:
    """1: the funnel, 2: a correlated Gaussian, 3: logistic regression on rows of Covertype."""
    return {1: _funnel, 2: _gaussian, 3: lambda: _covertype(data_dir)}[number]()


def _funnel() -> BenchmarkTarget:
    funnel = Funnel(2)
    reference, exact = (np.asarray(funnel.sample(jax.random.key(i), NUM_REFERENCE)) for i in (1, 2))
    return BenchmarkTarget("funnel, 2-D", 2, funnel.log_density, reference, exact, 200, 400)


def _gaussian() -> BenchmarkTarget:
    dim = 50
    index = np.arange(dim)
    scales = np.logspace(-0.5, 0.5, dim)
    covariance = 0.9 ** np.abs(index[:, None] - index) * scales[:, None] * scales
    density = Gaussian(np.ones(dim), covariance)
    reference, exact = (
        np.asarray(density.sample(jax.random.key(i), NUM_REFERENCE)) for i in (1, 2)
    )
    return BenchmarkTarget("Gaussian, 50-D", dim, density.log_density, reference, exact, 200, 400)


def _covertype(data_dir: Path | None) -> BenchmarkTarget:
    data = covertype.load(data_dir)
    features, labels = jnp.asarray(data.features[-NUM_ROWS:]), jnp.asarray(data.labels[-NUM_ROWS:])

    def log_density(position: jax.Array) -> jax.Array:
        logits = features @ position[1:]
        return covertype.log_prior(position) + labels @ logits - jnp.sum(jax.nn.softplus(logits))

    dim = features.shape[1] + 1
    draws = _reference_draws(log_density, dim)
    halves = draws[::2], draws[1::2]
    return BenchmarkTarget("Covertype, 56-D", dim, log_density, *halves, 100, 120)


def _reference_draws(log_density: Callable, dim: int) -> np.ndarray:
    """Draws by NUTS in coordinates in which the posterior is nearly standard normal."""
    # The mode by damped Newton steps; the curvature there sets the scales.
    position = jnp.zeros(dim)
    gradient = jax.jit(jax.grad(log_density))
    hessian = jax.jit(jax.hessian(log_density))
    for _ in range(30):
        newton = jnp.linalg.solve(hessian(position), gradient(position))
        position = position - newton / jnp.maximum(1.0, jnp.linalg.norm(newton))
    factor = jnp.linalg.inv(jnp.linalg.cholesky(-hessian(position))).T

    def rounded(u: jax.Array) -> jax.Array:
        return log_density(position + factor @ u)

    warmup_key, run_key = jax.random.split(jax.random.key(0))
    warmup = blackjax.window_adaptation(blackjax.nuts, rounded)
    (state, parameters), _ = warmup.run(warmup_key, jnp.zeros(dim), 300)
    kernel = blackjax.nuts(rounded, **parameters).step

    def step(state, key):
        state, _ = kernel(key, state)
        return state, state.position

    _, draws = jax.jit(lambda state: jax.lax.scan(step, state, jax.random.split(run_key, 2000)))(
        state
    )
    return np.asarray(position + draws @ factor.T)


def as_target(target: BenchmarkTarget) -> nvgd.Target:
    """The target for the library's own flows."""
    return nvgd.Target(target.log_density, dim=target.dim)
