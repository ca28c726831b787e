"""Euler steps, with or without noise, and steps of any `optax` transformation."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from nvgd._support.errors import InputError, check_step_size, check_transformation, plain
from nvgd._support.random_bits import random_normals
from nvgd.flow.movers.base import AbstractMover, State

StepSize = float | Float[Array, ""] | optax.Schedule


class Euler(AbstractMover[None]):
    """Euler steps x ← x + ε v + √(2ετ) ξ, with τ the direction's share of noise.

    Arguments:
        step_size: ε, a number or a schedule (a function of the step number).

    Examples:
        >>> mover = nvgd.movers.Euler(nvgd.movers.polynomial_decay(0.1))
    """

    step_size: StepSize = eqx.field(converter=plain)

    takes_noise: ClassVar[bool] = True

    def __check_init__(self):
        check_step_size("step_size", self.step_size)

    def size(self, step: Int[Array, ""], dtype: jnp.dtype) -> Float[Array, ""]:
        """ε at this step."""
        size = self.step_size(step) if callable(self.step_size) else self.step_size
        return jnp.asarray(size, dtype)

    def drift(
        self, particles: Float[Array, "n d"], velocities: Float[Array, "n d"], step: Int[Array, ""]
    ) -> Float[Array, "n d"]:
        """x + ε v, the step without noise; rows do not depend on each other."""
        return particles + self.size(step, particles.dtype) * velocities

    def init(self, particles):
        """No state."""
        del particles

    def __call__(self, aim, state, *, step, key):
        """One Euler (or, with noise, Euler–Maruyama) step."""
        del state
        moved = self.drift(aim.particles, aim.velocities, step)
        if aim.noise_share:
            noise = random_normals(key, moved.shape, moved.dtype)
            moved = moved + jnp.sqrt(2 * aim.noise_share * self.size(step, moved.dtype)) * noise
        return moved, None


class Optax(AbstractMover[PyTree]):
    """Moves the particles by an `optax` transformation, with −v as the gradient of a loss.

    Adam and RMSprop adapt the step size of each coordinate, which suits badly scaled targets. The
    particles then no longer follow the flow in time, but still move towards its limit.

    Arguments:
        transformation: an `optax` transformation such as `optax.adam(1e-2)`.

    Examples:
        >>> import optax
        >>> flow = nvgd.ParticleFlow(
        ...     nvgd.coordinates.Identity(),
        ...     nvgd.directions.Kernel(),
        ...     nvgd.movers.Optax(optax.adam(0.01)),
        ... )
    """

    transformation: optax.GradientTransformation

    def __check_init__(self):
        check_transformation("optimizer", self.transformation)

    def init(self, particles):
        """State of the transformation."""
        return self.transformation.init(particles)

    def __call__(self, aim, state, *, step, key):
        """One update of the transformation."""
        del step, key
        updates, state = self.transformation.update(-aim.velocities, state, aim.particles)
        return jnp.asarray(optax.apply_updates(aim.particles, updates)), state


class AbstractAroundEuler(AbstractMover[State]):
    """A mover that builds on Euler steps."""

    proposal: eqx.AbstractVar[AbstractMover]

    takes_noise: ClassVar[bool] = True

    def check_proposal(self, reason: str) -> None:
        """Reject a proposal other than `Euler`, for the given reason."""
        if not isinstance(self.proposal, Euler):
            raise InputError(
                f"{type(self).__name__} {reason}: give Euler(step_size), got {self.proposal!r}."
            )

    @property
    def euler(self) -> Euler:
        """The proposal, as `Euler`."""
        assert isinstance(self.proposal, Euler)  # `check_proposal` rejects others
        return self.proposal


def choose_mover(
    step_size: StepSize | None,
    optimizer: optax.GradientTransformation | None,
    default_step_size: float,
) -> AbstractMover:
    """`Euler` for `step_size`, or `Optax` for `optimizer`; giving both is an error."""
    if optimizer is None:
        return Euler(default_step_size if step_size is None else step_size)
    if step_size is not None:
        raise InputError(
            "give step_size (plain steps) or optimizer (an optax transformation, which has its own "
            "learning rate), not both."
        )
    return Optax(optimizer)
