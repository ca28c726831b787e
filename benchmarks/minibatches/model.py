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
# Newton steps after L-BFGS, at most.
MOST_NEWTON_STEPS = 20

Rows = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class WithMode:
    """Parameters, a pytree like the model's own, in which the density has a mode.

    That of a hierarchical model in centred form is unbounded where its scale tends to zero.
    """

    restore: Callable[[Any], Any]
    """Maps them to the model's own."""
    log_volume: Callable[[Any], Any]
    """Log determinant of that map, up to a constant."""

    @classmethod
    def of_effects(cls, **log_scales: Callable[[Any], Any]) -> "WithMode":
        """Effects in units of their scale.

        Arguments:
            log_scales: for the name of each array of effects, the log scale as a function of all
                parameters.
        """

        def restore(theta: Any) -> Any:
            own = {name: jnp.exp(scale(theta)) * theta[name] for name, scale in log_scales.items()}
            return {**theta, **own}

        def log_volume(theta: Any) -> Any:
            return sum(
                jnp.sum(jnp.broadcast_to(scale(theta), theta[name].shape))
                for name, scale in log_scales.items()
            )

        return cls(restore, log_volume)


@dataclasses.dataclass(frozen=True)
class MinibatchModel:
    """What a user would write, and where NUTS on all data begins."""

    name: str
    description: str
    log_prior: Callable[[Any], Any]
    log_likelihood: Callable[[Any, Any], Any]
    rows: Rows
    example: Any
    with_mode: WithMode = WithMode(lambda theta: theta, lambda theta: 0.0)
    """The normal approximation at the mode of these parameters whitens the model's own for NUTS."""
    is_easier: bool = False
    """Whether NUTS moves in the parameters `with_mode`, whitened, instead of the model's own."""

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
            rows, counts = distinct({name: _double(value) for name, value in self.rows.items()})
            unravel = ravel_pytree(example)[1]

            def log_density(flat: Any) -> Any:
                position = unravel(flat)
                terms = jax.vmap(self.log_likelihood, in_axes=(None, 0))(position, rows)
                return self.log_prior(position) + jnp.dot(counts, terms)

            easy = self._whitened(example, log_density)

        return BenchmarkPosterior(self.name, self.dim, self.description, log_density, easy=easy)

    def _whitened(self, example: Any, log_density: Callable[[Any], Any]) -> Reparametrisation:
        """Coordinates in units of a normal approximation at the mode."""
        start, unravel = ravel_pytree(example)

        def own(flat: Any) -> Any:
            return ravel_pytree(self.with_mode.restore(unravel(flat)))[0]

        @jax.jit
        def potential(flat: Any) -> Any:
            return -log_density(own(flat)) - self.with_mode.log_volume(unravel(flat))

        gradient, hessian = jax.jit(jax.grad(potential)), jax.jit(jax.hessian(potential))
        found = minimize(potential, start, jac=gradient, method="L-BFGS-B").x
        for _ in range(MOST_NEWTON_STEPS):
            step = np.linalg.solve(_positive(np.asarray(hessian(found))), gradient(found))
            here = potential(found)
            better = [size for size in (1.0, 0.3, 0.1) if potential(found - size * step) < here]
            if not better:
                break
            found = found - better[0] * step
        covariance = np.linalg.inv(_positive(np.asarray(hessian(found))))
        if self.is_easier:
            wide = np.linalg.cholesky(covariance)
            return Reparametrisation(
                lambda flat: own(found + wide @ flat),
                lambda flat: self.with_mode.log_volume(unravel(found + wide @ flat)),
            )
        slopes = np.asarray(jax.jit(jax.jacobian(own))(found))
        centre, root = np.asarray(own(found)), np.linalg.cholesky(slopes @ covariance @ slopes.T)
        return Reparametrisation(lambda flat: centre + root @ flat, lambda flat: jnp.zeros(()))


def distinct(rows: Rows) -> tuple[Rows, np.ndarray]:
    """The rows without repetitions, and how often each occurs."""
    table = np.concatenate([np.reshape(leaf, (len(leaf), -1)) for leaf in rows.values()], axis=1)
    _, first, counts = np.unique(table, axis=0, return_index=True, return_counts=True)
    return {name: leaf[first] for name, leaf in rows.items()}, counts.astype(np.float64)


def _double(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def _positive(matrix: np.ndarray) -> np.ndarray:
    """The symmetric matrix with the absolute values of its eigenvalues, bounded below."""
    scale = 1 / np.sqrt(np.abs(np.diag(matrix)) + 1e-300)
    values, axes = np.linalg.eigh(scale[:, None] * matrix * scale)
    values = np.maximum(np.abs(values), 1e-12)
    return (axes * values) @ axes.T / scale[:, None] / scale
