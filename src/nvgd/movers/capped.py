"""Capped steps in units of the particles' own spread, and rebirth of stranded particles."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from nvgd.errors import check_count, check_positive, plain
from nvgd.movers.base import AbstractMover
from nvgd.robust import can_fit_scatter, median, quantile

# How many times further than alone the particles may go together.
COMMON_CAPS = 3.0
# Velocities are averaged over about ten steps, to tell signal from noise.
MEMORY = 0.9
# However noisy, steps are not made smaller than this share.
SMALLEST_GAIN = 0.01


class RunningMean(NamedTuple):
    """Of velocities, and of their squared lengths, a row each."""

    mean: Float[Array, "m d"]
    square: Float[Array, "m 1"]

    @classmethod
    def zero(cls, like: Float[Array, "m d"]) -> "RunningMean":
        """Nothing seen yet."""
        return cls(jnp.zeros_like(like), jnp.zeros_like(like[:, :1]))

    def add(self, velocities: Float[Array, "m d"]) -> "RunningMean":
        """One more step."""
        square = jnp.sum(velocities**2, axis=1, keepdims=True)
        return RunningMean(
            MEMORY * self.mean + (1 - MEMORY) * velocities,
            MEMORY * self.square + (1 - MEMORY) * square,
        )

    def gain(self, step: Int[Array, ""]) -> Float[Array, "m 1"]:
        """|E v|²/E|v|², the share of v that is signal, corrected for how few steps it has seen."""
        forgotten = MEMORY ** (step + 1.0)
        share = jnp.sum(self.mean**2, axis=1, keepdims=True) / (self.square + 1e-30)
        share = share / (1 - forgotten)
        # What noise alone would show.
        chance = (1 - MEMORY) / (1 + MEMORY) * (1 + forgotten) / (1 - forgotten)
        chance = jnp.where(step < 5, 0.0, chance)
        gain = jnp.clip((share - chance) / (1 - chance), SMALLEST_GAIN, 1.0)
        return gain.astype(self.mean.dtype)


class CappedState(NamedTuple):
    """What the last steps were like; kept up only where scores come from minibatches."""

    shared: RunningMean
    own: RunningMean


class Capped(AbstractMover[CappedState]):
    """x ← x + ⌈v̄⌉₃ + ⌈v − v̄⌉₁ with ⌈v⌉ₖ = min(ε, kc/|v|) v: a cap for each particle.

    |v| is the root mean square over coordinates and v̄ the median of the velocities, which all
    particles share. For coordinates in which they have unit spread: none moves by more than the
    share c of it against the others, however steep the density is where it stands, and none holds
    up the others; all together may go three times as far, so that a distant target is soon
    reached. Over the second half of a run whose length is known (`sample` tells), ε and c fall to
    a tenth.

    With minibatches v is a signal with noise, most of which all particles share. v̄ and v − v̄ are
    multiplied by |E v|²/E|v|², the expectations over the last ten steps: the gain that makes the
    expected error fall fastest, so that steps shrink once noise is all there is (Schaul, Zhang and
    LeCun, "No more pesky learning rates", 2013).

    With too few particles to know their scatter (fewer than 1.25 a dimension) the coordinates can
    only be scaled one by one. A cap for each coordinate, c over the root mean square of its
    velocities over particles, takes the place of those above: Adam's normalisation, over the
    ensemble instead of over time; v is averaged over ten steps then.

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
        """No steps yet."""
        return CappedState(RunningMean.zero(particles[:1]), RunningMean.zero(particles))

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
        """One capped step; then, if it is their turn, the rebirths."""
        del noise_share, field
        done = step / self.horizon
        decay = 0.1 ** jnp.clip(2 * done - 1, 0.0, 1.0)
        if can_fit_scatter(*particles.shape):
            is_noisy = view is not None and view.batch is not None
            displacements, state = self._displacements(velocities, state, step, is_noisy)
        else:
            state = state._replace(own=state.own.add(velocities))
            displacements = self._by_coordinate(
                state.own.mean / (1 - MEMORY ** (step + 1.0)).astype(particles.dtype)
            )
        moved = particles + decay.astype(particles.dtype) * displacements
        is_due = step % self.rebirth_every == self.rebirth_every - 1
        is_due = is_due | jnp.any(jnp.isneginf(log_densities))
        reborn = jax.lax.cond(
            is_due, lambda: _reborn(moved, log_densities, done, key), lambda: moved
        )
        return reborn, state

    def _displacements(
        self,
        velocities: Float[Array, "n d"],
        state: CappedState,
        step: Int[Array, ""],
        is_noisy: bool,
    ) -> tuple[Float[Array, "n d"], CappedState]:
        """Together, and each particle against the others."""
        shared = median(velocities)[None]
        own = velocities - shared
        if is_noisy:
            state = CappedState(state.shared.add(shared), state.own.add(own))
            shared, own = state.shared.gain(step) * shared, state.own.gain(step) * own
        shift = self._capped(shared, COMMON_CAPS * self.cap)
        return shift + self._capped(own, self.cap), state

    def _by_coordinate(self, velocities: Float[Array, "n d"]) -> Float[Array, "n d"]:
        speed = jnp.sqrt(jnp.mean(velocities**2, axis=0))
        return jnp.minimum(self.step_size, self.cap / (speed + 1e-12)) * velocities

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
