"""Less noise from minibatches, by what they say at a fixed position.

With θ̂ a mode, L the log density and L_B its estimate from a batch (Baker et al., 2019),

    ∇L(θ) ≈ ∇L_B(θ) − ∇L_B(θ̂) + ∇L(θ̂)

is unbiased, whatever θ̂ is, and its variance falls with |θ − θ̂|².
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd.errors import InputError
from nvgd.modes import climb, on_all_data

if TYPE_CHECKING:
    from nvgd.target import Target


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


def find_anchor(target: "Target", start: Float[Array, " d"]) -> Anchor:
    """The mode that lies uphill of `start`, with log density and score from all data."""
    position = jnp.asarray(climb(target, start).end, start.dtype)
    log_densities, scores = on_all_data(target, position[None])
    if not bool(jnp.all(jnp.isfinite(scores))):
        raise InputError(
            "the search for a mode to hold control variates against ended where the log density is "
            'not finite: start it elsewhere by example=, or use gradient="plain".'
        )
    return Anchor(position, log_densities[0], scores[0])
