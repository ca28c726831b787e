"""A target that is heated and cooled as the run goes on."""

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

# From the share of the run that is done, in [0, 1], to the inverse temperature β.
TemperatureSchedule = Callable[[Float[Array, ""]], Float[Array, ""]]


def as_length(num_steps: float | int | Array | None) -> Float[Array, ""] | None:
    """A run's length as an array, so that runs of different lengths share one program."""
    return None if num_steps is None else jnp.asarray(num_steps, float)


class Cycles(eqx.Module):
    """β rises from `start` to 1 in each of `num_cycles` equal cycles and stays there.

        β(s) = max(start, min(1, c/(1 − hold))^power),   c the share of the cycle that is done

    One cycle is a plain warming-up; several let particles leave and find modes again and again
    (D'Angelo and Fortuin, 2021). `hold` is the share of a cycle that is left for p itself.

    Arguments:
        num_cycles, start, hold, power: as above.
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
        """β at this share of the run; 1 at its end."""
        cycle = jnp.where(done < 1, (done * self.num_cycles) % 1, 1.0)
        rising = jnp.clip(cycle / (1 - self.hold), 0.0, 1.0)
        return jnp.maximum(rising**self.power, self.start)


class AnnealedState(NamedTuple):
    """The inner direction's state, and how many steps it took."""

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
    """The inner direction for p^β, with β a function of the share of the run that is done.

        ∇log p ← β(t/T) ∇log p

    At small β barriers are low and particles spread over all modes; as β rises to 1 they settle.
    For SVGD: D'Angelo and Fortuin (2021). The weights of modes are those of the temperature at
    which the last particles crossed; `Resampled` steps correct them.

    Arguments:
        direction: the inner direction; any, also one with noise.
        schedule: `Cycles(...)`, or any function from the share of the run, in [0, 1], to β.
        num_steps: T; `sample` fills it in.
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
        """The inner direction's, at step 0."""
        if self.num_steps is None:
            raise InputError(
                "Annealed must know how long the run is: use nvgd.sample, or give num_steps."
            )
        return AnnealedState(self.direction.init(particles, key=key), jnp.array(0))

    def fit(self, particles, scores, state, *, view, key):
        """The inner direction at this step's temperature."""
        assert self.num_steps is not None  # `init` refuses
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
        """Those of the inner direction, at another temperature."""
        return self.direction.capabilities._replace(is_tempered=True)

    def for_run(self, num_steps):
        """The schedule stretched over the run, unless it has a length of its own."""
        inner = self.direction.for_run(num_steps)
        length = num_steps if self.num_steps is None else self.num_steps
        return Annealed(inner, self.schedule, length)

    def check_coordinates(self, coordinates):
        """Only affine frames: the log determinant of others must not be tempered with log p."""
        if coordinates.frame_kind == "general":
            raise InputError(
                f"Annealed multiplies scores, and in {type(coordinates).__name__} coordinates they "
                "hold more than the target's: use Identity(), Diagonal() or Whitened()."
            )
        self.direction.check_coordinates(coordinates)
