"""Resampling during annealing, so that separate modes get the right weights."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd._support.errors import InputError, check_callable, check_fraction, plain
from nvgd._support.resampling import systematic
from nvgd.flow.directions.annealed import Annealed, TemperatureSchedule, as_length
from nvgd.flow.movers.base import AbstractMover, check_memoryless
from nvgd.flow.movers.plain import AbstractAroundEuler


class ResampledState(NamedTuple):
    """Log weights since the last resampling, and their effective sample size divided by n."""

    log_weights: Float[Array, " n"]
    effective_share: Float[Array, ""]


class Resampled(AbstractAroundEuler[ResampledState]):
    """Euler steps, preceded by resampling for the change of temperature of an annealed target.

        log w ← log w + max(β_{t+1} − β_t, 0) log p(x)

    Once modes are too far apart to be crossed, an annealed flow keeps the weights of the modes at
    that temperature, instead of those at β = 1. With the importance weights w of sequential Monte
    Carlo (Del Moral et al., 2006), modes continue to exchange particles: when the effective sample
    size falls below a share of the particles, all of them are resampled. In a flow without noise,
    copies would stay together: put a `LangevinFraction` inside `Annealed`.

    Arguments:
        proposal: `Euler(step_size)`.
        schedule: the schedule of the `Annealed` direction, which gives β.
        threshold: resample when the effective sample size is below this share of the particles.
        num_steps: the length of the run; set by `sample` if omitted.

    Examples:
        >>> schedule = nvgd.directions.Cycles(power=3.0)
        >>> flow = nvgd.ParticleFlow(
        ...     nvgd.coordinates.Whitened(),
        ...     nvgd.directions.Annealed(nvgd.directions.Kernel(), schedule),
        ...     nvgd.movers.Resampled(nvgd.movers.Euler(0.2), schedule),
        ... )
    """

    proposal: AbstractMover
    schedule: TemperatureSchedule
    threshold: float = eqx.field(default=0.9, converter=plain)
    num_steps: Float[Array, ""] | None = eqx.field(default=None, converter=as_length)

    def __check_init__(self):
        check_callable("schedule", self.schedule)
        check_fraction("threshold", self.threshold)
        self.check_proposal("copies particles but not the state of a mover")

    def init(self, particles):
        """Equal weights."""
        if self.num_steps is None:
            raise InputError(
                "Resampled needs the length of the run: use nvgd.sample, or give num_steps."
            )
        return ResampledState(jnp.zeros(len(particles), particles.dtype), jnp.ones(()))

    def __call__(self, aim, state, *, step, key):
        """Update the weights, resample if due, and move."""
        resample_key, move_key = jax.random.split(key)
        assert self.num_steps is not None  # checked in `init`
        now, then = (
            self.schedule(jnp.clip(at / self.num_steps, 0.0, 1.0)) for at in (step, step + 1)
        )
        rise = jnp.maximum(then - now, 0.0)
        weights = jax.nn.softmax(state.log_weights + rise * aim.log_densities)
        num = len(weights)
        share = 1 / (num * jnp.sum(weights**2))
        # At constant temperature, remaining weights are resampled at once.
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
        """The effective sample size of the weights, as a share of the particles."""
        return {"effective_share": state.effective_share}

    def for_run(self, num_steps):
        """Set `num_steps` to the length of the run, unless it was given."""
        length = num_steps if self.num_steps is None else self.num_steps
        return Resampled(self.proposal, self.schedule, self.threshold, length)

    def check_parts(self, coordinates, direction):
        """Require an `Annealed` direction with the same schedule; otherwise weights are wrong."""
        if not isinstance(direction, Annealed) or direction.schedule != self.schedule:
            raise InputError(
                "Resampled weighs particles for a change of temperature: its schedule must be that "
                f"of an Annealed direction, got {type(direction).__name__}."
            )
        check_memoryless("Resampled", direction)
        super().check_parts(coordinates, direction)
