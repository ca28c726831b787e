"""What the parts of a step see: the target in its coordinates, and where particles would go."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from nvgd._support.errors import InputError
from nvgd.flow.coordinates.base import AbstractFrame
from nvgd.targets.scores import Scores
from nvgd.targets.target import Target


class TargetView(eqx.Module):
    """The target in a frame, on the batch of one step.

    For parts that need the score elsewhere than at the particles, or from other data rows than
    the step's: each of them says in `extra_gradients` what that costs.
    """

    target: Target
    frame: AbstractFrame
    batch: PyTree
    inverse_temperature: float | Float[Array, ""] = 1.0
    """What scores and log densities are multiplied by."""

    @property
    def is_noisy(self) -> bool:
        """Whether the target's scores are estimated from minibatches."""
        return self.target.is_noisy

    def evaluate(self, positions: Float[Array, "n d"]) -> Scores:
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
            return self._on(self.target.batch(rows), positions).scores
        alone = jax.vmap(lambda x, own: self._on(self.target.batch(own), x[None]).scores[0])
        return alone(positions, rows)

    def parts(self, positions: Float[Array, "n d"], num_parts: int) -> Float[Array, "k n d"]:
        """Scores from each of `num_parts` equal parts of the step's batch; their mean is its."""
        split = jax.tree.map(
            lambda leaf: leaf.reshape(num_parts, len(leaf) // num_parts, *leaf.shape[1:]),
            self.batch,
        )
        return jax.lax.map(lambda batch: self._on(batch, positions).scores, split)

    def _on(self, batch: PyTree, positions: Float[Array, "n d"]) -> Scores:
        particles = self.frame.restore(positions)
        log_densities, scores = self.target.log_densities_and_scores(particles, batch)
        _, expressed = self.frame.express(particles, scores)
        return Scores(
            self.inverse_temperature * log_densities, self.inverse_temperature * expressed
        )


class AbstractField(eqx.Module):
    """Velocities at any positions whose scores are known."""

    @abstractmethod
    def __call__(
        self, positions: Float[Array, "m d"], scores: Float[Array, "m d"]
    ) -> Float[Array, "m d"]:
        """One velocity per position; rows do not see each other."""

    def rows(self, num_particles: int) -> Int[Array, " m"]:
        """Which particles the field may move."""
        return jnp.arange(num_particles)


class Aim(NamedTuple):
    """What a mover needs of a step: where the particles are, and where they would go."""

    particles: Float[Array, "n d"]
    """In the step's coordinates, as are velocities and field."""
    velocities: Float[Array, "n d"]
    noise_share: float
    """The share of −∇log q that the mover adds as noise."""
    log_densities: Float[Array, " n"]
    """Before the move; −∞ where a rescuing mover has to bring a particle back."""
    is_scored: Bool[Array, " n"]
    """Where log density and score are finite."""
    field: AbstractField | None
    """Velocities everywhere; None if the direction knows them at its particles only."""
    view: TargetView


def check_batches(target: Target, who: str, num_parts: int = 1) -> None:
    """Refuse a target without the minibatches that `who` looks into."""
    if target.data is None or target.batch_size is None:
        raise InputError(
            f"{who} is about the noise of minibatches, and this target has none: give it data, "
            "log_likelihood and batch_size."
        )
    if target.data.rows is None and num_parts == 1:
        raise InputError(
            f"{who} draws batches of its own, which needs arrays in memory: data on the disk and "
            "streams come in their own order."
        )
    if target.batch_size % num_parts:
        raise InputError(
            f"{who} splits a batch into {num_parts} equal parts: batch_size must be a multiple of "
            f"that, got {target.batch_size}."
        )
