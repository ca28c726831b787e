"""Inputs of the parts of a step: the target in the step's coordinates, and the mover's input."""

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
    """The target on the batch of one step, in the coordinates of a frame.

    For parts that need scores at other positions than the particles, or from other data rows than
    the step's batch. Each such part reports the cost in `extra_gradients`. Programs that all
    targets share have a view without a target.

    Examples:
        >>> target = nvgd.Target(nvgd.densities.Banana().log_density, dim=2)
        >>> view = nvgd.directions.TargetView.of(target)
        >>> view.evaluate(jnp.zeros((5, 2))).scores.shape
        (5, 2)
    """

    target: Target | None
    batch: PyTree
    is_noisy: bool = eqx.field(static=True)
    """Whether scores count as noisy: those of minibatches do (`Target.flows_as_noisy`)."""
    frame: AbstractFrame | None = None
    inverse_temperature: float | Float[Array, ""] = 1.0
    """Factor of scores and log densities."""

    @classmethod
    def of(
        cls, target: Target, batch: PyTree = None, frame: AbstractFrame | None = None
    ) -> "TargetView":
        """The target on this batch."""
        return cls(target, batch, target.flows_as_noisy, frame)

    @classmethod
    def hidden(cls, *, is_noisy: bool) -> "TargetView":
        """A view for parts that never look at the target."""
        return cls(None, None, is_noisy)

    @property
    def shown(self) -> Target:
        """The target, for parts that declare that they evaluate it."""
        if self.target is None:
            raise InputError(
                "a part of the flow evaluates the target and does not say so: set "
                "evaluates_target in its capabilities (directions) or class (movers)."
            )
        return self.target

    def evaluate(self, positions: Float[Array, "n d"]) -> Scores:
        """Log densities and scores on the step's batch.

        The log densities omit the frame's log determinant, which is constant for affine frames.
        """
        return self._on(self.batch, positions)

    def refreshed(
        self, positions: Float[Array, "n d"], *, independent: bool, key: PRNGKeyArray
    ) -> Float[Array, "n d"]:
        """Scores from a fresh batch of rows, drawn with replacement.

        Arguments:
            independent: whether to draw one batch per position, or one for all positions.
        """
        draws = (len(positions),) if independent else ()
        target = self.shown
        shape = (*draws, target.batch_size or 1)
        rows = jax.random.randint(key, shape, 0, target.num_rows)
        if not independent:
            return self._on(target.batch(rows), positions).scores
        alone = jax.vmap(lambda x, own: self._on(target.batch(own), x[None]).scores[0])
        return alone(positions, rows)

    def parts(self, positions: Float[Array, "n d"], num_parts: int) -> Float[Array, "k n d"]:
        """Scores from each of `num_parts` equal parts of the batch; their mean is its score."""
        split = jax.tree.map(
            lambda leaf: leaf.reshape(num_parts, len(leaf) // num_parts, *leaf.shape[1:]),
            self.batch,
        )
        return jax.lax.map(lambda batch: self._on(batch, positions).scores, split)

    def _on(self, batch: PyTree, positions: Float[Array, "n d"]) -> Scores:
        frame = self.frame
        particles = positions if frame is None else frame.restore(positions)
        log_densities, scores = self.shown.log_densities_and_scores(particles, batch)
        if frame is not None:
            _, scores = frame.express(particles, scores)
        return Scores(self.inverse_temperature * log_densities, self.inverse_temperature * scores)


class AbstractField(eqx.Module):
    """A velocity field: velocities at any positions, given the scores there.

    Examples:
        >>> class Constant(nvgd.directions.AbstractField):
        ...     def __call__(self, positions, scores):
        ...         return jnp.ones_like(positions)
        >>> Constant()(jnp.zeros((3, 2)), jnp.zeros((3, 2))).shape
        (3, 2)
    """

    @abstractmethod
    def __call__(
        self, positions: Float[Array, "m d"], scores: Float[Array, "m d"]
    ) -> Float[Array, "m d"]:
        """One velocity per position; rows do not depend on each other."""

    def rows(self, num_particles: int) -> Int[Array, " m"]:
        """Indices of the particles that the field may move."""
        return jnp.arange(num_particles)


class Aim(NamedTuple):
    """Input of a mover: particles and velocities of one step, in the step's coordinates.

    Examples:
        >>> nvgd.movers.Aim._fields[:3]
        ('particles', 'velocities', 'noise_share')
    """

    particles: Float[Array, "n d"]
    velocities: Float[Array, "n d"]
    noise_share: float
    """Share of −∇log q that the mover adds as noise."""
    log_densities: Float[Array, " n"]
    """Log densities before the move; −∞ at particles that the mover has to rescue."""
    is_scored: Bool[Array, " n"]
    """Whether log density and score are finite, one entry per particle."""
    field: AbstractField | None
    """Velocities at any position; None if the direction has them at its particles only."""
    frame: AbstractFrame
    view: TargetView
    """The target in the frame's coordinates."""
    without_repulsion: Float[Array, "n d"] | None = None
    """Velocities without the approximation of −∇log q, if noise may replace it."""


def check_batches(target: Target, who: str, num_parts: int = 1) -> None:
    """Reject a target without the minibatches that `who` needs."""
    if target.data is None or target.batch_size is None:
        raise InputError(
            f"{who} needs minibatches, and this target has none: give it data, log_likelihood "
            "and batch_size."
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
