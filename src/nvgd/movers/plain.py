"""Plain steps, with or without noise, and steps of any `optax` transformation."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from nvgd.errors import InputError, check_step_size, check_transformation, plain
from nvgd.movers.base import AbstractMover

StepSize = float | Float[Array, ""] | optax.Schedule


class Euler(AbstractMover[None]):
    """x ← x + ε v + √(2ετ) ξ, with τ the share of noise that the direction asks for.

    Arguments:
        step_size: ε, a number or a schedule (a function of the step number).
    """

    step_size: StepSize = eqx.field(converter=plain)

    takes_noise: ClassVar[bool] = True
    carries: ClassVar[bool] = True
    is_pointwise: ClassVar[bool] = True

    def __check_init__(self):
        check_step_size("step_size", self.step_size)

    def init(self, particles):
        """Nothing to remember."""
        del particles

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
        """One Euler (or, with noise, Euler–Maruyama) step."""
        del state, log_densities, field, view
        size = size_at(self.step_size, step, particles.dtype)
        moved = particles + size * velocities
        if noise_share:
            noise = jax.random.normal(key, particles.shape, particles.dtype)
            moved = moved + jnp.sqrt(2 * noise_share * size) * noise
        return moved, None


class Optax(AbstractMover[PyTree]):
    """Any `optax` transformation moves the particles, as if −v were the gradient of a loss.

    Adam or RMSprop take steps of a size of their own in every coordinate, which suits badly scaled
    targets; what they move no longer follows the flow in time, only towards the same end.
    """

    transformation: optax.GradientTransformation

    takes_noise: ClassVar[bool] = False
    carries: ClassVar[bool] = True

    def __check_init__(self):
        check_transformation("optimizer", self.transformation)

    def init(self, particles):
        """The transformation's own state."""
        return self.transformation.init(particles)

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
        """One update."""
        del noise_share, log_densities, step, key, field, view
        updates, state = self.transformation.update(-velocities, state, particles)
        return jnp.asarray(optax.apply_updates(particles, updates)), state


def size_at(step_size: StepSize, step: Int[Array, ""], dtype: jnp.dtype) -> Float[Array, ""]:
    """ε at this step."""
    return jnp.asarray(step_size(step) if callable(step_size) else step_size, dtype)


def choose_mover(
    step_size: StepSize | None,
    optimizer: optax.GradientTransformation | None,
    default_step_size: float,
) -> AbstractMover:
    """Euler steps of `step_size`, or moves by `optimizer`; giving both is refused."""
    if optimizer is None:
        return Euler(default_step_size if step_size is None else step_size)
    if step_size is not None:
        raise InputError(
            "give step_size (plain steps) or optimizer (an optax transformation, which has its own "
            "learning rate), not both."
        )
    return Optax(optimizer)
