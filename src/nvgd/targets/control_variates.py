"""Control variates for minibatch scores (Baker et al., 2019).

With θ̂ a mode, L the log density and L_B its estimate from a batch, the estimate

    ∇L(θ) ≈ ∇L_B(θ) − ∇L_B(θ̂) + ∇L(θ̂)

is unbiased for any θ̂, and its variance falls to zero with |θ − θ̂|². Far from θ̂ the variance is
larger than that of ∇L_B(θ). `nvgd.sample` therefore starts near θ̂ and refuses a start far from it.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nvgd._support.errors import InputError
from nvgd.targets.climbs import Objective, climb
from nvgd.targets.curvature import MAX_DENSE_DIMENSION, eigen_decomposed

MOST_NEWTON_STEPS = 20
STEP_SIZES = (1.0, 0.3, 0.1, 0.01)
# Root mean square distance from a mode, in standard deviations: below NEAR the search ends, above
# FAR it has failed.
NEAR = 0.1
FAR = 3.0


class Anchor(eqx.Module):
    """The fixed position θ̂, with the log density and score of all data there."""

    position: Float[Array, " d"]
    log_density: Float[Array, ""]
    score: Float[Array, " d"]

    def corrected(
        self, estimate: Callable[[Array], Array], position: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """The estimate with its first-order Taylor expansion at θ̂ replaced by the exact one.

        Under `vmap` over positions, the terms that depend only on the batch and θ̂ are computed
        once.

        Arguments:
            estimate: L_B, the log density estimated from one batch.
            position: θ.
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
    """Climb from `start` to a mode, and return it with the log density and score of all data.

    Arguments:
        objective: returns log density and score at a position.
        curvature: returns −∇²log p at a position, times each probe.
        start: position from which to climb.
    """
    position = jnp.asarray(climb(objective, start).end, start.dtype)
    if len(start) <= MAX_DENSE_DIMENSION:
        position = _polished(objective, curvature, position)
    log_density, score = objective(position)
    if not bool(jnp.all(jnp.isfinite(score))):
        raise InputError(
            "the search for the mode that control variates need ended where the log density is "
            'not finite: start it elsewhere by example=, or use gradient="plain".'
        )
    return Anchor(position, log_density, score)


def _polished(
    objective: Objective, curvature: Callable[[Array, Array], np.ndarray], position: Array
) -> Array:
    """Refine a position by Newton steps to within a fraction of a standard deviation of a mode.

    L-BFGS alone is not enough: rounding in a sum over many rows ends it hundreds of standard
    deviations too early in steep directions.
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
        # Steps are compared by their scores: rounding of a large log density hides small gains.
        candidates = [position + jnp.asarray(c * shift, position.dtype) for c in STEP_SIZES]
        rests = [np.mean(in_deviations(objective(there)[1]) ** 2) for there in candidates]
        best = int(np.argmin(np.nan_to_num(rests, nan=np.inf)))
        if not rests[best] < distance**2:
            break
        position = candidates[best]
    if distance > FAR:
        raise InputError(
            "the search for the mode that control variates need ended about "
            f"{distance:.3g} standard deviations away from one: start it nearer by example=, use "
            'double precision, or gradient="plain".'
        )
    return position
