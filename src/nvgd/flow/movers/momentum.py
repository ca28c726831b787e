"""Steps with inertia: underdamped Langevin dynamics."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd._support.errors import InputError, check_share, check_step_size, plain
from nvgd.flow.movers.base import AbstractMover, check_fixed
from nvgd.flow.movers.plain import Euler, StepSize


class Momentum(AbstractMover[Float[Array, "n d"]]):
    """x ← x + m, m ← μm + εv + √(2ετ(1 − μ)) ξ: particles with inertia.

    Underdamped Langevin dynamics in the form of SGHMC (Chen et al., 2014): noise and the friction
    1 − μ are in balance. It goes as far in a step as plain steps of ε/(1 − μ), but turns less
    sharply. Without noise this is the heavy ball, which Optax has:
    `Optax(optax.sgd(ε, momentum=μ))`.

    Choose it for ill-conditioned targets, with ε as for plain steps in the stiffest direction.

    Arguments:
        step_size: ε, a number or schedule.
        momentum: μ; 0 gives plain steps.
    """

    step_size: StepSize = eqx.field(converter=plain)
    momentum: float = eqx.field(default=0.9, converter=plain)

    def __check_init__(self):
        check_step_size("step_size", self.step_size)
        check_share("momentum", self.momentum)
        if self.momentum == 1:
            raise InputError("momentum must be below 1, or nothing ever comes to rest.")

    @property
    def takes_noise(self):
        """In balance with its friction."""
        return True

    def init(self, particles):
        """At rest."""
        return jnp.zeros_like(particles)

    def __call__(self, aim, state, *, step, key):
        """One step with what is left of the last one."""
        size = Euler(self.step_size).size(step, aim.particles.dtype)
        pull = size * aim.velocities
        noise = jax.random.normal(key, pull.shape, pull.dtype)
        pull = pull + jnp.sqrt(2 * aim.noise_share * size * (1 - self.momentum)) * noise
        state = self.momentum * state + pull
        return aim.particles + state, state

    def check_parts(self, coordinates, direction):
        """Momentum is kept in coordinates that must stay, and is balanced by noise."""
        check_fixed(coordinates, "Momentum carries steps over")
        if not direction.capabilities.noise_share:
            raise InputError(
                f"Momentum balances friction with noise, and {type(direction).__name__} asks for "
                "none: use Optax(optax.sgd(step_size, momentum=...))."
            )
        super().check_parts(coordinates, direction)
