"""Half-ensemble fields: trained on one half of the particles, applied to the other half."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from nvgd._support.errors import InputError, check_count, plain
from nvgd._support.trees import where
from nvgd.flow.aim import AbstractField
from nvgd.flow.directions.base import AbstractDirection, Fit
from nvgd.flow.directions.wrapper import AbstractWrapper


class HalvesState(NamedTuple):
    """State that the next fit starts from, and the number of steps taken."""

    direction: PyTree
    step: Int[Array, ""]


class _HalfField(AbstractField):
    field: AbstractField
    first: Int[Array, ""]
    num_moved: int = eqx.field(static=True)

    def __call__(self, positions, scores):
        return self.field(positions, scores)

    def rows(self, num_particles):
        del num_particles
        return self.first + jnp.arange(self.num_moved)


class Halves(AbstractWrapper[HalvesState]):
    """Fits the inner direction to one half A of the particles and moves the other half B.

        B ← B + ε f_A(B) + noise,   A ← A

    A and B swap roles after every step. Given A, the field is a fixed function, so `Metropolis` can
    accept or reject moves of B exactly: the joint distribution pⁿ of all particles is invariant.
    This requires that the field carries no information about B from earlier steps. State such as
    the weights of a network is therefore kept for the first `warmup` steps only; afterwards every
    fit starts from the same state.

    Arguments:
        direction: f, a direction with a field: `Neural` or `Kernel`, wrapped in `LangevinFraction`,
            because a proposal needs noise.
        warmup: number of initial steps during which the state is kept between steps; the target is
            left invariant only afterwards.

    Examples:
        >>> inner = nvgd.directions.LangevinFraction(nvgd.directions.Neural(), 0.3)
        >>> direction = nvgd.directions.Halves(inner, warmup=100)
    """

    direction: AbstractDirection
    warmup: int = eqx.field(default=0, converter=plain)

    def __check_init__(self):
        self.check_inner(field_for="where no particle was")
        check_count("warmup", self.warmup, minimum=0)

    def init(self, particles, *, key):
        """State of the inner direction on half of the particles."""
        if len(particles) % 2:
            raise InputError(
                f"Halves splits the particles into equal parts: num_particles must be even, got "
                f"{len(particles)}."
            )
        half = particles[: len(particles) // 2]
        return HalvesState(self.direction.init(half, key=key), jnp.array(0))

    def fit(self, particles, scores, state, *, view, key):
        """Fit the field to one half; the other half gets velocities, the fitted half zeros."""
        num_moved = len(particles) // 2
        turn = state.step % 2
        train, train_scores = (
            values.reshape(2, num_moved, -1)[turn] for values in (particles, scores)
        )
        fit = self.direction.fit(train, train_scores, state.direction, view=view, key=key)
        assert fit.field is not None
        kept = where(state.step < self.warmup, fit.state, state.direction)
        field = _HalfField(fit.field, (1 - turn) * num_moved, num_moved)
        rows = field.rows(len(particles))
        velocities = jnp.zeros_like(particles).at[rows].set(field(particles[rows], scores[rows]))
        return Fit(velocities, field, HalvesState(kept, state.step + 1), fit.diagnostics)

    @property
    def capabilities(self):
        """Capabilities of the inner direction; velocities depend on the resting half."""
        return self.direction.capabilities._replace(depends_on="resting")

    def extra_gradients(self, num_particles):
        """Gradients of the inner direction on half of the particles."""
        return self.direction.extra_gradients(num_particles // 2)
