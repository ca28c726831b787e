"""Passes over all data, and the mode found by them."""

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from nvgd.compilation import compiled
from nvgd.errors import InputError

if TYPE_CHECKING:
    from nvgd.target import Target


class Path(NamedTuple):
    """Where an optimiser went."""

    positions: list[np.ndarray]
    """From the start to the end, one an iteration."""
    converged: bool

    @property
    def end(self) -> np.ndarray:
        """The best position found."""
        return self.positions[-1]


@compiled
def _on_block(target: "Target", particles: Array, block: PyTree) -> tuple[Array, Array]:
    return target.at_every(particles, lambda at: target.estimate(at, block))


def on_all_data(
    target: "Target", particles: Float[Array, "n d"]
) -> tuple[Float[Array, " n"], Float[Array, "n d"]]:
    """Log densities and scores from all data, however large: block by block."""
    if target.batch_size is None:
        return _on_block(target, particles, None)
    values, scores = np.zeros(len(particles)), np.zeros(particles.shape)
    num_rows = 0
    for block in target.blocks():
        size = len(jax.tree.leaves(block)[0])
        # Every block estimates the whole; weighted by their sizes, the estimates are exact. They
        # are summed on the host, in double precision.
        block_values, block_scores = _on_block(target, particles, block)
        values += size * np.asarray(block_values)
        scores += size * np.asarray(block_scores)
        num_rows += size
    dtype = particles.dtype
    return jnp.asarray(values / num_rows, dtype), jnp.asarray(scores / num_rows, dtype)


def climb(target: "Target", start: Float[Array, " d"], max_iterations: int = 500) -> Path:
    """L-BFGS on the log density of all data, uphill."""
    from scipy.optimize import minimize

    dtype = start.dtype

    def negative(position: np.ndarray) -> tuple[float, np.ndarray]:
        values, scores = on_all_data(target, jnp.asarray(position, dtype)[None])
        return -float(values[0]), -np.asarray(scores[0], np.float64)

    at_start = np.asarray(start, np.float64)
    if not np.isfinite(negative(at_start)[0]):
        raise InputError(
            "the search for a mode cannot start where the log density is not finite: give example "
            "a position inside its support."
        )
    positions = [at_start]
    result = minimize(
        negative,
        at_start,
        jac=True,
        method="L-BFGS-B",
        callback=lambda position: positions.append(np.array(position)),
        # Smaller differences than rounding are nothing to go on searching for.
        # How small a gradient is depends on the units.
        options={
            "maxiter": max_iterations,
            "maxcor": 20,
            "ftol": 2 * float(jnp.finfo(dtype).eps),
            "gtol": 0.0,
        },
    )
    if np.all(np.isfinite(result.x)):
        positions.append(np.asarray(result.x))
    return Path(positions, bool(result.success))
