"""What a step lets its parts see of the target, in the coordinates of that step."""

from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from nvgd.coordinates import AbstractFrame
from nvgd.data import AbstractHostData
from nvgd.directions.base import Fit
from nvgd.errors import InputError
from nvgd.target import Target


class View(eqx.Module):
    """The target in a frame, on the batch of one step.

    For parts that need the score elsewhere than at the particles, or from other data rows than
    the step's: each of them says in `extra_gradients` what that costs.
    """

    target: Target
    frame: AbstractFrame
    batch: PyTree
    inverse_temperature: float | Float[Array, ""] = 1.0
    """What scores and log densities are multiplied by."""

    def evaluate(
        self, positions: Float[Array, "n d"]
    ) -> tuple[Float[Array, " n"], Float[Array, "n d"]]:
        """Log densities, up to a constant if the frame is affine, and scores."""
        return self._on(self.batch, positions)

    def refreshed(
        self, positions: Float[Array, "n d"], *, independent: bool, key: PRNGKeyArray
    ) -> Float[Array, "n d"]:
        """Scores from other rows, drawn with replacement: the same for all positions, or not."""
        draws = (len(positions),) if independent else ()
        shape = (*draws, self.target.batch_size or 1)
        rows = jax.random.randint(key, shape, 0, self.target.num_rows)
        if not independent:
            return self._on(self.target.batch(rows), positions)[1]
        alone = jax.vmap(lambda x, own: self._on(self.target.batch(own), x[None])[1][0])
        return alone(positions, rows)

    def parts(self, positions: Float[Array, "n d"], num_parts: int) -> Float[Array, "k n d"]:
        """Scores from each of `num_parts` equal parts of the step's batch; their mean is its."""
        split = jax.tree.map(
            lambda leaf: leaf.reshape(num_parts, len(leaf) // num_parts, *leaf.shape[1:]),
            self.batch,
        )
        return jax.lax.map(lambda batch: self._on(batch, positions)[1], split)

    def _on(
        self, batch: PyTree, positions: Float[Array, "n d"]
    ) -> tuple[Float[Array, " n"], Float[Array, "n d"]]:
        particles = self.frame.restore(positions)
        log_densities, scores = self.target.log_densities_and_scores(particles, batch)
        _, expressed = self.frame.express(particles, scores)
        return self.inverse_temperature * log_densities, self.inverse_temperature * expressed


class Aim(NamedTuple):
    """Half a step: where the particles are, in the step's coordinates, and where they would go."""

    particles: Float[Array, "n d"]
    log_densities: Float[Array, " n"]
    is_scored: Bool[Array, " n"]
    """Where log density and score are finite."""
    fit: Fit
    view: View
    coordinates_state: PyTree


def check_batches(target: Target, who: str, num_parts: int = 1) -> None:
    """Refuse a target without the minibatches that `who` looks into."""
    if target.batch_size is None:
        raise InputError(
            f"{who} is about the noise of minibatches, and this target has none: give it data, "
            "log_likelihood and batch_size."
        )
    if isinstance(target.data, AbstractHostData) and num_parts == 1:
        raise InputError(
            f"{who} draws batches of its own, which it can only from arrays in memory; data that "
            "JAX does not hold come in the order of their stream."
        )
    if target.batch_size % num_parts:
        raise InputError(
            f"{who} splits a batch into {num_parts} equal parts: batch_size must be a multiple of "
            f"that, got {target.batch_size}."
        )
