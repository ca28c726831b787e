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
class MinibatchModel:
    """What a user would write, and coordinates in which NUTS samples all data well."""

    name: str
    description: str
    log_prior: Callable[[Any], Any]
    log_likelihood: Callable[[Any, Any], Any]
    rows: Rows
    example: Any
    restore: Callable[[Any], Any] | None = None
    """Maps easier parameters, a pytree like `example`, to the model's own; identity if omitted.
    NUTS samples the easier ones, whitened at their mode."""

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

        def log_density(flat: Any) -> Any:
            _, unravel = ravel_pytree(example)
            return self._log_density(unravel(flat), rows)

        def restore(flat: Any) -> Any:
            _, unravel = ravel_pytree(example)
            return ravel_pytree(self._own(unravel(centre + root @ flat)))[0]

        def log_jacobian(flat: Any) -> Any:
            return jnp.linalg.slogdet(jax.jacfwd(restore)(flat))[1]

        constant = (lambda flat: jnp.zeros(())) if self.restore is None else log_jacobian
        return BenchmarkPosterior(
            self.name,
            self.dim,
            self.description,
            log_density,
            easy=Reparametrisation(restore, constant),
        )

    def _own(self, easier: Any) -> Any:
        return easier if self.restore is None else self.restore(easier)

    def _log_density(self, position: Any, rows: Rows) -> Any:
        terms = jax.vmap(self.log_likelihood, in_axes=(None, 0))(position, rows)
        return self.log_prior(position) + jnp.sum(terms)

    def _whitening(self, example: Any, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Mode of the easier parameters, and a root of the inverse Hessian there."""
        start, unravel = ravel_pytree(example)

        @jax.jit
        def potential(flat: Any) -> Any:
            def own(at: Any) -> Any:
                return ravel_pytree(self._own(unravel(at)))[0]

            value = -self._log_density(self._own(unravel(flat)), rows)
            volume = jnp.linalg.slogdet(jax.jacfwd(own)(flat))[1] if self.restore else 0.0
            return value - volume

        gradient, hessian = jax.jit(jax.grad(potential)), jax.jit(jax.hessian(potential))
        found = minimize(potential, start, jac=gradient, method="L-BFGS-B").x
        for _ in range(20):
            step = np.linalg.solve(_positive(np.asarray(hessian(found))), gradient(found))
            sizes = [size for size in (1.0, 0.3, 0.1) if potential(found - size * step) < potential(found)]
            if not sizes:
                break
            found = found - sizes[0] * step
        return found, np.linalg.cholesky(np.linalg.inv(_positive(np.asarray(hessian(found)))))


def _double(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def _positive(matrix: np.ndarray) -> np.ndarray:
    """The symmetric matrix with the absolute values of its eigenvalues, bounded below."""
    scale = 1 / np.sqrt(np.abs(np.diag(matrix)) + 1e-300)
    values, axes = np.linalg.eigh(scale[:, None] * matrix * scale)
    values = np.maximum(np.abs(values), 1e-12)
    return (axes * values) @ axes.T / scale[:, None] / scale
