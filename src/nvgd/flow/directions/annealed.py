"""Annealing: a target whose temperature follows a schedule over the run."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from nvgd._support.errors import (
    InputError,
    check_callable,
    check_count,
    check_fraction,
    check_positive,
    check_share,
    plain,
)
from nvgd.flow.aim import AbstractField
from nvgd.flow.directions.base import AbstractDirection
from nvgd.flow.directions.wrapper import AbstractWrapper

# Maps the completed share of the run, in [0, 1], to the inverse temperature β.
TemperatureSchedule = Callable[[Float[Array, ""]], Float[Array, ""]]


def as_length(num_steps: float | int | Array | None) -> Float[Array, ""] | None:
    """The length of a run as an array, so that runs of different lengths share one program."""
    return None if num_steps is None else jnp.asarray(num_steps, float)


class Cycles(eqx.Module):
    """A schedule of equal cycles, in each of which β rises from `start` to 1 and stays there.

        β(s) = max(start, min(1, c/(1 − hold))^power),   c the completed share of the cycle

    One cycle is a simple warm-up. With several cycles, particles leave modes and find them again
    (D'Angelo and Fortuin, 2021).

    Arguments:
        num_cycles: number of cycles per run.
        start: smallest β.
        hold: share of each cycle during which β = 1.
        power: exponent of the rise.

    Examples:
        >>> schedule = nvgd.directions.Cycles(power=3.0)
        >>> [round(float(schedule(jnp.array(share))), 3) for share in (0.5, 1.0)]
        [0.296, 1.0]
    """

    num_cycles: int = eqx.field(default=1, converter=plain)
    start: float = eqx.field(default=0.05, converter=plain)
    hold: float = eqx.field(default=0.25, converter=plain)
    power: float = eqx.field(default=1.0, converter=plain)

    def __check_init__(self):
        check_count("num_cycles", self.num_cycles)
        check_share("start", self.start)
        check_fraction("hold", self.hold)
        check_positive("power", self.power)

    def __call__(self, done: Float[Array, ""]) -> Float[Array, ""]:
        """β at the completed share `done` of the run; 1 at its end."""
        cycle = jnp.where(done < 1, (done * self.num_cycles) % 1, 1.0)
        rising = jnp.clip(cycle / (1 - self.hold), 0.0, 1.0)
        return jnp.maximum(rising**self.power, self.start)


class AnnealedState(NamedTuple):
    """State of the inner direction, and the number of steps taken."""

    direction: PyTree
    step: Int[Array, ""]


class _Tempered(AbstractField):
    field: AbstractField
    inverse_temperature: Float[Array, ""]

    def __call__(self, positions, scores):
        return self.field(positions, self.inverse_temperature * scores)

    def rows(self, num_particles):
        return self.field.rows(num_particles)


class Annealed(AbstractWrapper[AnnealedState]):
    """Applies a direction to the tempered target p^β, with β scheduled over the run.

        ∇log p ← β(t/T) ∇log p

    At small β barriers are low and particles spread over all modes; as β rises to 1 they settle.
    For SVGD: D'Angelo and Fortuin (2021). Modes keep the weights of the temperature at which
    particles last crossed between them; the `Resampled` mover corrects these weights.

    Arguments:
        direction: the inner direction, with or without noise.
        schedule: `Cycles(...)`, or any function from the completed share of the run, in [0, 1],
            to β.
        num_steps: T, the length of the run; set by `sample` if omitted.

    Examples:
        >>> schedule = nvgd.directions.Cycles(power=3.0)
        >>> direction = nvgd.directions.Annealed(nvgd.directions.Kernel(), schedule)
    """

    direction: AbstractDirection
    schedule: TemperatureSchedule = Cycles()
    num_steps: Float[Array, ""] | None = eqx.field(default=None, converter=as_length)

    def __check_init__(self):
        self.check_inner()
        check_callable("schedule", self.schedule)
        if self.num_steps is not None:
            check_positive("num_steps", self.num_steps)

    def init(self, particles, *, key):
        """State of the inner direction, at step 0."""
        if self.num_steps is None:
            raise InputError(
                "Annealed needs the length of the run: use nvgd.sample, or give num_steps."
            )
        return AnnealedState(self.direction.init(particles, key=key), jnp.array(0))

    def fit(self, particles, scores, state, *, view, key):
        """Fit the inner direction at the temperature of this step."""
        assert self.num_steps is not None  # checked in `init`
        done = jnp.clip(state.step / self.num_steps, 0.0, 1.0)
        beta = jnp.asarray(self.schedule(done), particles.dtype)
        if view is not None:
            view = eqx.tree_at(lambda v: v.inverse_temperature, view, beta)
        fit = self.direction.fit(particles, beta * scores, state.direction, view=view, key=key)
        return fit._replace(
            field=None if fit.field is None else _Tempered(fit.field, beta),
            state=AnnealedState(fit.state, state.step + 1),
            diagnostics={**fit.diagnostics, "inverse_temperature": beta},
        )

    @property
    def capabilities(self):
        """Capabilities of the inner direction, tempered."""
        return self.direction.capabilities._replace(is_tempered=True)

    def for_run(self, num_steps):
        """Set `num_steps` to the length of the run, unless it was given."""
        inner = self.direction.for_run(num_steps)
        length = num_steps if self.num_steps is None else self.num_steps
        return Annealed(inner, self.schedule, length)

    def check_coordinates(self, coordinates):
        """Accept affine frames only: the log determinant of others must not be tempered."""
        if coordinates.frame_kind == "general":
            raise InputError(
                f"Annealed multiplies scores, and in {type(coordinates).__name__} coordinates they "
                "hold more than the target's: use Identity(), Diagonal() or Whitened()."
            )
        self.direction.check_coordinates(coordinates)
