"""A model of the minibatch benchmark: a prior, the likelihood of one row, and the rows."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

import nvgd
from benchmarks.posteriors.posterior import (
    BenchmarkPosterior,
    Reparametrisation,
    double_precision,
)

BATCH_SIZE = 256

Rows = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Easier:
    """Parameters, a pytree like the model's own, in which NUTS samples all data well."""

    restore: Callable[[Any], Any]
    """Maps them to the model's own."""
    log_volume: Callable[[Any], Any]
    """Log determinant of that map, up to a constant."""


@dataclasses.dataclass(frozen=True)
class MinibatchModel:
    """What a user would write, and coordinates in which NUTS samples all data well."""

    name: str
    description: str
    log_prior: Callable[[Any], Any]
    log_likelihood: Callable[[Any, Any], Any]
    rows: Rows
    example: Any
    easier: Easier = Easier(lambda theta: theta, lambda theta: 0.0)
    """NUTS samples these parameters, whitened at their mode."""

    def target(self, batch_size: int | None = BATCH_SIZE, **options: Any) -> nvgd.Target:
        """The model as a target, on all rows at once if `batch_size` is None."""
        return nvgd.Target(
            self.log_prior,
            example=self.example,
            log_likelihood=self.log_likelihood,
            data=self.rows,
            batch_size=batch_size,
            **options,
        )

    @property
    def num_rows(self) -> int:
        """N."""
        return len(next(iter(self.rows.values())))

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(ravel_pytree(self.example)[0])

    def posterior(self) -> BenchmarkPosterior:
        """The posterior of all rows, for a reference in double precision."""
        with double_precision():
            example = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), self.example)
            rows = {name: _double(value) for name, value in self.rows.items()}
            centre, root = self._whitening(example, rows)

        def unravelled(flat: Any) -> Any:
            return ravel_pytree(example)[1](flat)

        def log_density(flat: Any) -> Any:
            return self._log_density(unravelled(flat), rows)

        def restore(flat: Any) -> Any:
            return ravel_pytree(self.easier.restore(unravelled(centre + root @ flat)))[0]

        def log_jacobian(flat: Any) -> Any:
            return jnp.asarray(self.easier.log_volume(unravelled(centre + root @ flat)))

        easy = Reparametrisation(restore, log_jacobian)
        return BenchmarkPosterior(self.name, self.dim, self.description, log_density, easy=easy)

    def _log_density(self, position: Any, rows: Rows) -> Any:
        terms = jax.vmap(self.log_likelihood, in_axes=(None, 0))(position, rows)
        return self.log_prior(position) + jnp.sum(terms)

    def _whitening(self, example: Any, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Mode of the easier parameters, and a root of the inverse Hessian there."""
        start, unravel = ravel_pytree(example)

        @jax.jit
        def potential(flat: Any) -> Any:
            easier = unravel(flat)
            value = self._log_density(self.easier.restore(easier), rows)
            return -value - self.easier.log_volume(easier)

        gradient, hessian = jax.jit(jax.grad(potential)), jax.jit(jax.hessian(potential))
        found = minimize(potential, start, jac=gradient, method="L-BFGS-B").x
        for _ in range(20):
            step = np.linalg.solve(_positive(np.asarray(hessian(found))), gradient(found))
            here = potential(found)
            better = [size for size in (1.0, 0.3, 0.1) if potential(found - size * step) < here]
            if not better:
                break
            found = found - better[0] * step
        return found, np.linalg.cholesky(np.linalg.inv(_positive(np.asarray(hessian(found)))))


def _double(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def _positive(matrix: np.ndarray) -> np.ndarray:
    """The symmetric matrix with the absolute values of its eigenvalues, bounded below."""
    scale = 1 / np.sqrt(np.abs(np.diag(matrix)) + 1e-300)
    values, axes = np.linalg.eigh(scale[:, None] * matrix * scale)
    values = np.maximum(np.abs(values), 1e-12)
    return (axes * values) @ axes.T / scale[:, None] / scale
