"""What the measurements share: runs over seeds, distances, rows of tables."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import nvgd
from nvgd._support.tables import mean_and_deviation
from nvgd.densities import AbstractDensity

Table = list[Sequence[str]]

# A network that is trained faster than the paper's, so that a few hundred steps suffice.
NETWORK = {"learning_rate": 1e-3, "max_inner_steps": 10, "patience": 10}


def network(**options: Any) -> nvgd.directions.Neural:
    """The witness of all measurements."""
    return nvgd.directions.Neural(**{**NETWORK, **options})


def flow(direction: Any, mover: Any, coordinates: Any = None) -> nvgd.ParticleFlow:
    """A flow, in `Identity` coordinates unless others are given."""
    return nvgd.ParticleFlow(coordinates or nvgd.coordinates.Identity(), direction, mover)


def target_of(density: AbstractDensity) -> nvgd.Target:
    """The density as a target."""
    return nvgd.Target(density.log_density, dim=density.dim)


def over_seeds(
    target: nvgd.Target,
    method: nvgd.ParticleFlow,
    num_seeds: int,
    measure: Callable[[Any], float],
    **options: Any,
) -> list[float]:
    """A measure of the posterior, one value per seed."""
    return [
        measure(nvgd.sample(target, method, seed=seed, progress=False, **options))
        for seed in range(num_seeds)
    ]


def energy_to(density: AbstractDensity) -> Callable[[Any], float]:
    """The energy distance of a posterior to 2000 exact draws."""
    reference = density.sample(jax.random.key(99), 2000)
    return lambda posterior: float(nvgd.metrics.energy_distance(posterior.particles, reference))


def exact_energy(density: AbstractDensity, num_draws: int, num_seeds: int) -> list[float]:
    """The same energy distance of `num_draws` exact draws, one value per seed."""
    reference = density.sample(jax.random.key(99), 2000)
    return [
        float(nvgd.metrics.energy_distance(density.sample(jax.random.key(s), num_draws), reference))
        for s in range(num_seeds)
    ]


def cell(values: Sequence[float], digits: int = 3) -> str:
    """Mean ± standard deviation, or "diverged" if a value is not finite."""
    array = np.asarray(values)
    return mean_and_deviation(array, digits) if np.isfinite(array).all() else "diverged"


def ill_conditioned(dim: int, smallest: float = 1e-3) -> nvgd.densities.Gaussian:
    """A normal with variances from `smallest` to 1 along randomly rotated axes."""
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(dim, dim)))[0]
    covariance = turn @ np.diag(np.geomspace(smallest, 1.0, dim)) @ turn.T
    return nvgd.densities.Gaussian(np.zeros(dim), 0.5 * (covariance + covariance.T))


def whitened_error(density: nvgd.densities.Gaussian) -> Callable[[Any], float]:
    """Largest relative error of a standard deviation along the principal axes of the target."""
    values, axes = np.linalg.eigh(np.asarray(density.covariance, np.float64))

    def measure(posterior: Any) -> float:
        along = np.asarray(posterior.particles, np.float64) @ axes
        return float(np.max(np.abs(along.std(axis=0) / np.sqrt(values) - 1)))

    return measure
