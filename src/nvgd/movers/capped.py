"""Capped steps in units of the particles' own spread, and rebirth of stranded particles."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd.errors import check_count, check_positive, plain
from nvgd.movers.base import AbstractMover
from nvgd.robust import median, quantile

# How many times further than alone the particles may go together.
COMMON_CAPS = 3.0


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
        del noise_share, state, field, view
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
