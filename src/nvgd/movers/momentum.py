"""Steps that remember the last ones."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd.errors import InputError, check_share, check_step_size, plain
from nvgd.movers.base import AbstractMover
from nvgd.movers.plain import StepSize, size_at


class Momentum(AbstractMover[Float[Array, "n d"]]):
    """x ← x + m, m ← μm + εv + √(2ετ(1 − μ)) ξ: particles with inertia.

    Without noise it is the heavy ball, or Nesterov's variant x ← x + μm + εv, on the flow (Liu et
    al., 2019, accelerate particles so); with it, underdamped Langevin dynamics in the form of
    SGHMC (Chen et al., 2014), since noise and friction 1 − μ are in balance. Either goes as far
    in a step as plain steps of ε/(1 − μ), but turns less sharply.

    Choose it for ill-conditioned targets, with ε as for plain steps in the stiffest direction.

    Arguments:
        step_size: ε, a number or schedule.
        momentum: μ; 0 are plain steps.
        nesterov: look ahead; not with noise.
    """

    step_size: StepSize = eqx.field(converter=plain)
    momentum: float = eqx.field(default=0.9, converter=plain)
    nesterov: bool = eqx.field(default=False, converter=plain)

    takes_noise: ClassVar[bool] = True
    carries: ClassVar[bool] = True

    def __check_init__(self):
        check_step_size("step_size", self.step_size)
        check_share("momentum", self.momentum)
        if self.momentum == 1:
            raise InputError("momentum must be below 1, or nothing ever comes to rest.")

    def init(self, particles):
        """At rest."""
        return jnp.zeros_like(particles)

    def __call__(
        self,
        particles,
        velocities,
        noise_share,
        state,
        *,
        log_densities,
        step,
        key,
        field=None,
        view=None,
    ):
        """One step with what is left of the last one."""
        del log_densities, field, view
        size = size_at(self.step_size, step, particles.dtype)
        pull = size * velocities
        if noise_share:
            noise = jax.random.normal(key, particles.shape, particles.dtype)
            pull = pull + jnp.sqrt(2 * noise_share * size * (1 - self.momentum)) * noise
        state = self.momentum * state + pull
        ahead = pull + self.momentum * state if self.nesterov else state
        return particles + ahead, state

    def check_parts(self, coordinates, direction):
        """Momentum is kept in coordinates that must stay; looking ahead has no noise to balance."""
        if not coordinates.is_fixed:
            raise InputError(
                f"Momentum carries steps over, which {type(coordinates).__name__} coordinates "
                "would express differently the next time: use Identity() or "
                "Preconditioned(matrix)."
            )
        if self.nesterov and direction.noise_share:
            raise InputError(
                "nesterov=True looks ahead along steps whose noise is not balanced by friction: "
                f"use Momentum(nesterov=False) with {type(direction).__name__}."
            )
        super().check_parts(coordinates, direction)
