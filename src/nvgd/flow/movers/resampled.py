"""Particles copied and dropped while a target cools, so that its modes get their weights."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd._support.errors import InputError, check_callable, check_fraction, plain
from nvgd._support.resampling import systematic
from nvgd.flow.directions.annealed import Annealed, TemperatureSchedule, as_length
from nvgd.flow.movers.base import AbstractMover
from nvgd.flow.movers.plain import AbstractAroundEuler


class ResampledState(NamedTuple):
    """Log weights since the last resampling, and the share of particles they are worth."""

    log_weights: Float[Array, " n"]
    effective_share: Float[Array, ""]


class Resampled(AbstractAroundEuler[ResampledState]):
    """Euler's step, after the particles were resampled as the change of temperature asks.

        log w ← log w + max(β_{t+1} − β_t, 0) log p(x)

    Once modes are too far apart to be crossed, an annealed flow keeps the weights that they had at
    that temperature, in proportion to wᵝ. With these weights, those of sequential Monte Carlo (Del
    Moral et al., 2006), modes go on to exchange particles: when they are worth less than a share
    of the particles, all are drawn anew from each other. Copies stay together in a flow without
    noise: put a `LangevinFraction` inside of `Annealed`.

    Arguments:
        proposal: `Euler(step_size)`.
        schedule: that of the `Annealed` direction.
        threshold: the effective share of particles below which they are resampled.
        num_steps: the run's length; `sample` fills it in.
    """

    proposal: AbstractMover
    schedule: TemperatureSchedule
    threshold: float = eqx.field(default=0.9, converter=plain)
    num_steps: Float[Array, ""] | None = eqx.field(default=None, converter=as_length)

    def __check_init__(self):
        check_callable("schedule", self.schedule)
        check_fraction("threshold", self.threshold)
        self.check_proposal("copies particles but not what a mover remembers of them")

    def init(self, particles):
        """Equal weights."""
        if self.num_steps is None:
            raise InputError(
                "Resampled must know how long the run is: use nvgd.sample, or give num_steps."
            )
        return ResampledState(jnp.zeros(len(particles), particles.dtype), jnp.ones(()))

    def __call__(self, aim, state, *, step, key):
        """Weigh, resample if it is time, move."""
        resample_key, move_key = jax.random.split(key)
        assert self.num_steps is not None  # `init` refuses
        now, then = (
            self.schedule(jnp.clip(at / self.num_steps, 0.0, 1.0)) for at in (step, step + 1)
        )
        rise = jnp.maximum(then - now, 0.0)
        weights = jax.nn.softmax(state.log_weights + rise * aim.log_densities)
        num = len(weights)
        share = 1 / (num * jnp.sum(weights**2))
        # What is left of weights when the temperature stays is settled at once.
        is_due = share < jnp.where(rise > 0, self.threshold, 0.9999)
        offset = jax.random.uniform(resample_key)
        chosen = jnp.where(is_due, systematic(weights, num, offset), jnp.arange(num))
        copied = aim._replace(
            particles=aim.particles[chosen],
            velocities=aim.velocities[chosen],
            log_densities=aim.log_densities[chosen],
        )
        moved, _ = self.euler(copied, None, step=step, key=move_key)
        log_weights = jnp.where(is_due, 0.0, jnp.log(weights))
        return moved, ResampledState(log_weights.astype(moved.dtype), share)

    def diagnostics(self, state):
        """The share of particles that the weights were worth."""
        return {"effective_share": state.effective_share}

    def for_run(self, num_steps):
        """The schedule stretched over the run, unless it has a length of its own."""
        length = num_steps if self.num_steps is None else self.num_steps
        return Resampled(self.proposal, self.schedule, self.threshold, length)

    def check_parts(self, coordinates, direction):
        """Weights for a temperature that does not change, or changes otherwise, would be wrong."""
        if not isinstance(direction, Annealed) or direction.schedule != self.schedule:
            raise InputError(
                "Resampled weighs particles for a change of temperature: its schedule must be that "
                f"of an Annealed direction, got {type(direction).__name__}."
            )
        super().check_parts(coordinates, direction)
