"""Exact draws from posteriors that are Gaussian given one or two of their coordinates."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from benchmarks.posteriors.posterior import LogDensity, double_precision

# Less than a millionth of the mass lies this many nats below the peak.
DEPTH = 18.0
# Grid points per hyperparameter, if there are one or two of them.
GRID_SIZES = {1: 4000, 2: 200}


def conditionally_gaussian_draws(
    log_density: LogDensity,
    dim: int,
    hyperparameters: Sequence[int],
    seed: int,
    num_draws: int,
    *,
    widest: tuple[float, float] = (-20.0, 20.0),
) -> np.ndarray:
    """Draw from p(φ, β), where log p is quadratic in β given φ, the one or two hyperparameters.

    p(φ) = ∫ p(φ, β) dβ has a closed form. φ is drawn from it on a grid whose cells are so small
    that uniform draws inside a cell add less than a thousandth to the variance; then β given φ is
    drawn exactly.

    Arguments:
        widest: an interval that contains every φ; the grid is fitted to the mass inside it.
    """
    hyper = np.array(hyperparameters)
    rest = np.setdiff1d(np.arange(dim), hyper)
    with double_precision():

        def joint(phi: Array, beta: Array) -> Array:
            return log_density(jnp.zeros(dim).at[hyper].set(phi).at[rest].set(beta))

        def conditional(phi: Array) -> tuple[Array, Array, Array]:
            """Mean, Cholesky factor of the precision, and log p(φ)."""
            mean = jnp.zeros(len(rest))
            factor = jnp.linalg.cholesky(-jax.hessian(joint, 1)(phi, mean))
            for _ in range(3):  # one Newton step is exact up to rounding
                slope = jax.grad(joint, 1)(phi, mean)
                mean = mean + jax.scipy.linalg.cho_solve((factor, True), slope)
            log_mass = joint(phi, mean) - jnp.sum(jnp.log(jnp.diagonal(factor)))
            return mean, factor, log_mass

        def draw(phi: Array, noise: Array) -> Array:
            mean, factor, _ = conditional(phi)
            return mean + jax.scipy.linalg.solve_triangular(factor, noise, lower=True, trans=1)

        log_masses = jax.jit(lambda phis: jax.lax.map(lambda p: conditional(p)[2], phis))
        axes = [np.linspace(*widest, 81)] * len(hyper)
        for _ in range(3):
            axes = _narrowed(axes, _evaluate(log_masses, axes))
            axes = [np.linspace(axis[0], axis[-1], 41) for axis in axes]
        size = GRID_SIZES[len(hyper)]
        axes = [np.linspace(axis[0], axis[-1], size) for axis in axes]
        log_mass = _evaluate(log_masses, axes)

        rng = np.random.default_rng(seed)
        weights = np.exp(log_mass - log_mass.max()).ravel()
        cells = rng.choice(weights.size, num_draws, p=weights / weights.sum())
        indices = np.unravel_index(cells, log_mass.shape)
        phi = np.stack([axis[index] for axis, index in zip(axes, indices, strict=True)], axis=1)
        widths = np.array([axis[1] - axis[0] for axis in axes])
        phi = phi + widths * rng.uniform(-0.5, 0.5, phi.shape)
        noise = rng.standard_normal((num_draws, len(rest)))
        beta = jax.jit(lambda phi, noise: jax.lax.map(lambda pair: draw(*pair), (phi, noise)))(
            jnp.asarray(phi), jnp.asarray(noise)
        )
    draws = np.empty((num_draws, dim))
    draws[:, hyper], draws[:, rest] = phi, np.asarray(beta)
    return draws


def _evaluate(log_masses, axes: Sequence[np.ndarray]) -> np.ndarray:
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    values = np.asarray(log_masses(jnp.asarray(grid.reshape(-1, len(axes)))))
    # At the ends of the widest interval a precision matrix can overflow or be singular.
    return np.where(np.isfinite(values), values, -np.inf).reshape(grid.shape[:-1])


def _narrowed(axes: Sequence[np.ndarray], log_mass: np.ndarray) -> list[np.ndarray]:
    """The part of each axis within `DEPTH` of the peak, plus one point on either side."""
    is_in = log_mass > log_mass.max() - DEPTH
    kept = []
    for number, axis in enumerate(axes):
        others = tuple(other for other in range(len(axes)) if other != number)
        inside = np.flatnonzero(is_in.any(axis=others))
        kept.append(axis[max(inside[0] - 1, 0) : inside[-1] + 2])
    return kept
