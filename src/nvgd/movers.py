"""How particles step along their velocities."""

from abc import abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from nvgd.errors import (
    InputError,
    check_positive,
    check_step_size,
    check_transformation,
    plain,
)

State = TypeVar("State")
StepSize = float | Float[Array, ""] | optax.Schedule


class AbstractMover(eqx.Module, Generic[State]):
    """Applies velocities; adds the noise that the direction asks for, if it can."""

    takes_noise: ClassVar[bool]
    """Whether noise of the right size for its step can be added."""

    @abstractmethod
    def init(self, particles: Float[Array, "n d"]) -> State:
        """What the first move needs to know."""

    @abstractmethod
    def __call__(
        self,
        particles: Float[Array, "n d"],
        velocities: Float[Array, "n d"],
        noise_share: float,
        state: State,
        *,
        step: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "n d"], State]:
        """The moved particles, and the state for the next move."""


class Euler(AbstractMover[None]):
    """x ← x + ε v + √(2ετ) ξ, with τ the share of noise that the direction asks for.

    Arguments:
        step_size: ε, a number or a schedule (a function of the step number).
    """

    step_size: StepSize = eqx.field(converter=plain)

    takes_noise: ClassVar[bool] = True

    def __check_init__(self):
        check_step_size("step_size", self.step_size)

    def init(self, particles):
        """Nothing to remember."""
        del particles

    def __call__(self, particles, velocities, noise_share, state, *, step, key):
        """One Euler (or, with noise, Euler–Maruyama) step."""
        del state
        size = self.step_size(step) if callable(self.step_size) else self.step_size
        size = jnp.asarray(size, particles.dtype)
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

    def __check_init__(self):
        check_transformation("optimizer", self.transformation)

    def init(self, particles):
        """The transformation's own state."""
        return self.transformation.init(particles)

    def __call__(self, particles, velocities, noise_share, state, *, step, key):
        """One update."""
        del noise_share, step, key
        updates, state = self.transformation.update(-velocities, state, particles)
        return jnp.asarray(optax.apply_updates(particles, updates)), state


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


class PolynomialDecay(eqx.Module):
    """ε_t = a (1 + t/b)^(−γ), a schedule; equal settings share one compiled program."""

    initial: float
    offset: float
    power: float

    def __call__(self, step: Any) -> Any:
        """ε_t at step t."""
        return self.initial * (1 + step / self.offset) ** (-self.power)


def polynomial_decay(initial: float, offset: float = 1.0, power: float = 0.55) -> PolynomialDecay:
    """SGLD's step sizes ε_t = a (1 + t/b)^(−γ) (Welling and Teh, 2011).

    With ½ < γ ≤ 1 the steps sum to infinity and their squares do not, so that the noise of the
    minibatches averages out.

    Arguments:
        initial: a, the first step size.
        offset: b, how many steps pass before the decay sets in.
        power: γ.
    """
    check_positive("initial", initial)
    check_positive("offset", offset)
    check_positive("power", power, zero_allowed=True)
    return PolynomialDecay(initial, offset, power)
