"""Control variates for minibatches: the estimate is corrected by its value at a fixed position.

With θ̂ a mode, L the log density and L_B its estimate from a batch (Baker et al., 2019),

    ∇L(θ) ≈ ∇L_B(θ) − ∇L_B(θ̂) + ∇L(θ̂)

is unbiased, whatever θ̂ is, and its variance falls with |θ − θ̂|². Far from θ̂ the variance is larger
than without the correction: `nvgd.sample` starts near θ̂, and refuses a start far away.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nvgd._support.errors import InputError
from nvgd.targets.curvature import MAX_DENSE_DIMENSION, eigen_decomposed
from nvgd.targets.mode_search import Objective, climb

MOST_NEWTON_STEPS = 20
STEP_SIZES = (1.0, 0.3, 0.1, 0.01)
# Root mean square distance from a mode, in standard deviations, at which the search may end, and
# beyond which it has failed.
NEAR = 0.1
FAR = 3.0


class Anchor(eqx.Module):
    """θ̂ with the log density and score that all data give there."""

    position: Float[Array, " d"]
    log_density: Float[Array, ""]
    score: Float[Array, " d"]

    def corrected(
        self, estimate: Callable[[Array], Array], position: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """The estimate with its first two terms around θ̂ replaced by the true ones.

        What depends on the batch and θ̂ alone is computed once for all particles mapped over.
        """
        anchor = self.position.astype(position.dtype)
        value, score = jax.value_and_grad(estimate)(anchor)
        offset = self.log_density - value + (position - anchor) @ (self.score - score)
        return estimate(position) + offset.astype(position.dtype)


def find_anchor(
    objective: Objective,
    curvature: Callable[[Array, Array], np.ndarray],
    start: Float[Array, " d"],
) -> Anchor:
    """The mode uphill of `start`, with log density and score from all data.

    Arguments:
        objective: log density and score at a position.
        curvature: −∇²log p at a position, times probes.
    """
    position = jnp.asarray(climb(objective, start).end, start.dtype)
    if len(start) <= MAX_DENSE_DIMENSION:
        position = _polished(objective, curvature, position)
    log_density, score = objective(position)
    if not bool(jnp.all(jnp.isfinite(score))):
        raise InputError(
            "the search for a mode to hold control variates against ended where the log density is "
            'not finite: start it elsewhere by example=, or use gradient="plain".'
        )
    return Anchor(position, log_density, score)


def _polished(
    objective: Objective, curvature: Callable[[Array, Array], np.ndarray], position: Array
) -> Array:
    """Newton steps to within a fraction of a standard deviation of a mode.

    Rounding of a sum over many rows ends a climb early, by hundreds of standard deviations in
    steep directions.
    """
    identity = jnp.eye(len(position), dtype=position.dtype)
    distance = np.inf
    for _ in range(MOST_NEWTON_STEPS):
        precisions, axes = eigen_decomposed(curvature(position, identity))

        def in_deviations(score: Array, precisions=precisions, axes=axes) -> np.ndarray:
            return (axes.T @ np.asarray(score, np.float64)) / np.sqrt(precisions)

        found = in_deviations(objective(position)[1])
        distance = float(np.sqrt(np.mean(found**2)))
        if distance < NEAR:
            break
        shift = axes @ (found / np.sqrt(precisions))
        # Judged by the score: the rounding of a large log density hides the last gains.
        candidates = [position + jnp.asarray(c * shift, position.dtype) for c in STEP_SIZES]
        rests = [np.mean(in_deviations(objective(there)[1]) ** 2) for there in candidates]
        best = int(np.argmin(np.nan_to_num(rests, nan=np.inf)))
        if not rests[best] < distance**2:
            break
        position = candidates[best]
    if distance > FAR:
        raise InputError(
            "the search for a mode to hold control variates against ended about "
            f"{distance:.3g} standard deviations away from one: start it nearer by example=, use "
            'double precision, or gradient="plain".'
        )
    return position
