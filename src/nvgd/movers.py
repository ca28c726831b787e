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
    check_count,
    check_positive,
    check_step_size,
    check_transformation,
    plain,
)
from nvgd.robust import median, quantile

# How many times further than alone the particles may go together.
COMMON_CAPS = 3.0

State = TypeVar("State")
StepSize = float | Float[Array, ""] | optax.Schedule


class AbstractMover(eqx.Module, Generic[State]):
    """Applies velocities; adds the noise that the direction asks for, if it can."""

    takes_noise: ClassVar[bool]
    """Whether noise of the right size for its step can be added."""

    rescues: ClassVar[bool] = False
    """Whether a particle where the log density is not finite is brought back at once."""

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
        log_densities: Float[Array, " n"],
        step: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "n d"], State]:
        """The moved particles, and the state for the next move."""

    def for_run(self, num_steps: int) -> "AbstractMover":
        """The mover for a run whose length is known."""
        del num_steps
        return self


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

    def __call__(self, particles, velocities, noise_share, state, *, log_densities, step, key):
        """One Euler (or, with noise, Euler–Maruyama) step."""
        del state, log_densities
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

    def __call__(self, particles, velocities, noise_share, state, *, log_densities, step, key):
        """One update."""
        del noise_share, log_densities, step, key
        updates, state = self.transformation.update(-velocities, state, particles)
        return jnp.asarray(optax.apply_updates(particles, updates)), state


class Capped(AbstractMover[None]):
    """x ← x + ⌈v̄⌉₃ + ⌈v − v̄⌉₁ with ⌈v⌉ₖ = min(ε, kc/|v|) v: a cap for each particle.

    |v| is the root mean square over coordinates and v̄ the median of the velocities, which all
    particles share. For coordinates in which they have unit spread: none moves by more than the
    share c of it against the others, however steep the density is where it stands, and none holds
    up the others; all together may go three times as far, so that a distant target is soon
    reached. Over the second half of a run whose length is known (`sample` tells), ε and c fall to
    a tenth.

    Particles that are stranded, with a log density so far below the others' that no path of
    sensible length leads back, are reborn every so many steps beside one of the better half: until
    70 % of the run, those more than 10 + 5d and five times the upper spread below the median. A
    particle that stepped to where the log density is not finite is reborn at once.

    Arguments:
        step_size: ε.
        cap: c.
        rebirth_every: steps between rebirths.
    """

    step_size: float = eqx.field(default=0.1, converter=plain)
    cap: float = eqx.field(default=0.1, converter=plain)
    rebirth_every: int = eqx.field(default=20, converter=plain)
    # An array, so that runs of different lengths share one compiled program.
    horizon: Float[Array, ""] = eqx.field(default=jnp.inf, converter=jnp.asarray)

    takes_noise: ClassVar[bool] = False
    rescues: ClassVar[bool] = True

    def __check_init__(self):
        check_positive("step_size", self.step_size)
        check_positive("cap", self.cap)
        check_count("rebirth_every", self.rebirth_every)

    def for_run(self, num_steps: int) -> "AbstractMover":
        """Step sizes that fall towards the run's end."""
        return eqx.tree_at(lambda mover: mover.horizon, self, jnp.asarray(float(num_steps)))

    def init(self, particles):
        """Nothing to remember."""
        del particles

    def __call__(self, particles, velocities, noise_share, state, *, log_densities, step, key):
        """One capped step; then, if it is their turn, the rebirths."""
        del noise_share, state
        done = step / self.horizon
        decay = 0.1 ** jnp.clip(2 * done - 1, 0.0, 1.0)
        shared = median(velocities)[None]
        shift = self._capped(shared, COMMON_CAPS * self.cap)
        moved = particles + decay.astype(particles.dtype) * (
            shift + self._capped(velocities - shared, self.cap)
        )
        is_due = step % self.rebirth_every == self.rebirth_every - 1
        is_due = is_due | jnp.any(jnp.isneginf(log_densities))
        reborn = jax.lax.cond(
            is_due, lambda: _reborn(moved, log_densities, done, key), lambda: moved
        )
        return reborn, None

    def _capped(self, velocities: Float[Array, "n d"], cap: float) -> Float[Array, "n d"]:
        speed = jnp.sqrt(jnp.mean(velocities**2, axis=1, keepdims=True))
        return jnp.minimum(self.step_size, cap / (speed + 1e-12)) * velocities


def _reborn(
    particles: Float[Array, "n d"],
    log_densities: Float[Array, " n"],
    done: Float[Array, ""],
    key: PRNGKeyArray,
) -> Float[Array, "n d"]:
    """The particles, stranded ones half a unit beside a good one."""
    num_particles, dim = particles.shape
    choice_key, jitter_key = jax.random.split(key)
    # Bisection needs finite ends.
    finite = jnp.maximum(log_densities, jnp.finfo(log_densities.dtype).min / 4)
    middle = median(finite)
    upper = quantile(finite, 0.9) - middle
    is_stranded = middle - log_densities > jnp.maximum(10.0 + 5.0 * dim, 5 * upper)
    is_stranded = (is_stranded & (done < 0.7)) | jnp.isneginf(log_densities)
    # The best of eight at random: hardly ever one of the worse half.
    picked = jax.random.randint(choice_key, (num_particles, 8), 0, num_particles)
    best = jnp.argmax(log_densities[picked], axis=1)
    chosen = jnp.take_along_axis(picked, best[:, None], axis=1)[:, 0]
    jitter = 0.5 * jax.random.normal(jitter_key, particles.shape, particles.dtype)
    return jnp.where(is_stranded[:, None], particles[chosen] + jitter, particles)


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
