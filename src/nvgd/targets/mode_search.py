"""Mode search by L-BFGS."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nvgd._support.errors import InputError

# Maps a position to the log density and score of all data.
Objective = Callable[[Float[Array, " d"]], tuple[Float[Array, ""], Float[Array, " d"]]]


class ClimbPath(NamedTuple):
    """The path of an optimiser."""

    positions: list[np.ndarray]
    """One per iteration, from the start to the final position."""
    converged: bool

    @property
    def end(self) -> np.ndarray:
        """The final position."""
        return self.positions[-1]


def climb(objective: Objective, start: Float[Array, " d"], max_iterations: int = 500) -> ClimbPath:
    """Maximise the log density of all data by L-BFGS, from `start`."""
    from scipy.optimize import minimize

    dtype = start.dtype

    def negative(position: np.ndarray) -> tuple[float, np.ndarray]:
        value, score = objective(jnp.asarray(position, dtype))
        return -float(value), -np.asarray(score, np.float64)

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
        # `ftol` stops at rounding error. `gtol` is off: the size of a gradient depends on units.
        options={
            "maxiter": max_iterations,
            "maxcor": 20,
            "ftol": 2 * float(jnp.finfo(dtype).eps),
            "gtol": 0.0,
        },
    )
    if np.all(np.isfinite(result.x)):
        positions.append(np.asarray(result.x))
    return ClimbPath(positions, bool(result.success))
