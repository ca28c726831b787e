"""Steps with momentum: underdamped Langevin dynamics."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd._support.errors import InputError, check_share, check_step_size, plain
from nvgd._support.random_bits import random_normals
from nvgd.flow.movers.base import AbstractMover, check_fixed
from nvgd.flow.movers.plain import Euler, StepSize


class Momentum(AbstractMover[Float[Array, "n d"]]):
    """Underdamped Langevin dynamics in the form of SGHMC (Chen et al., 2014).

        m ← μm + εv + √(2ετ(1 − μ)) ξ,   x ← x + m

    Noise and the friction 1 − μ are in balance. Steps are as long as Euler steps of size ε/(1 − μ),
    but change direction more slowly. Without noise this is the heavy-ball method, which Optax
    provides: `Optax(optax.sgd(ε, momentum=μ))`.

    Choose it for ill-conditioned targets, with ε as for Euler steps in the stiffest direction.

    Arguments:
        step_size: ε, a number or schedule.
        momentum: μ; 0 gives Euler steps.

    Examples:
        >>> flow = nvgd.ParticleFlow(
        ...     nvgd.coordinates.Identity(), nvgd.directions.Langevin(), nvgd.movers.Momentum(0.01)
        ... )
    """

    step_size: StepSize = eqx.field(converter=plain)
    momentum: float = eqx.field(default=0.9, converter=plain)

    takes_noise: ClassVar[bool] = True

    def __check_init__(self):
        check_step_size("step_size", self.step_size)
        check_share("momentum", self.momentum)
        if self.momentum == 1:
            raise InputError("momentum must be below 1, got 1: there would be no friction.")

    def init(self, particles):
        """Zero momentum."""
        return jnp.zeros_like(particles)

    def __call__(self, aim, state, *, step, key):
        """Update the momentum, then move by it."""
        size = Euler(self.step_size).size(step, aim.particles.dtype)
        pull = size * aim.velocities
        noise = random_normals(key, pull.shape, pull.dtype)
        pull = pull + jnp.sqrt(2 * aim.noise_share * size * (1 - self.momentum)) * noise
        state = self.momentum * state + pull
        return aim.particles + state, state

    def check_parts(self, coordinates, direction):
        """Require fixed coordinates, in which momentum is stored, and a direction with noise."""
        check_fixed(coordinates, "Momentum carries steps over")
        if not direction.capabilities.noise_share:
            raise InputError(
                f"Momentum balances friction with noise, and {type(direction).__name__} asks for "
                "none: use Optax(optax.sgd(step_size, momentum=...))."
            )
        super().check_parts(coordinates, direction)
