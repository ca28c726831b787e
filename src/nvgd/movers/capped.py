"""Capped steps in units of the particles' own spread, and rebirth of stranded particles."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from nvgd.errors import check_count, check_positive, plain
from nvgd.movers.base import AbstractMover
from nvgd.robust import median, quantile

# How many times further than alone the particles may go together.
COMMON_CAPS = 3.0


class Capped(AbstractMover[Float[Array, ""]]):
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
    carries: ClassVar[bool] = True
    rescues: ClassVar[bool] = True

    def __check_init__(self):
        check_positive("step_size", self.step_size)
        check_positive("cap", self.cap)
        check_count("rebirth_every", self.rebirth_every)

    def for_run(self, num_steps: int) -> "AbstractMover":
        """Step sizes that fall towards the run's end."""
        return eqx.tree_at(lambda mover: mover.horizon, self, jnp.asarray(float(num_steps)))

    def init(self, particles):
        """The share of particles whose last step was capped."""
        return jnp.zeros((), particles.dtype)

    def diagnostics(self, state):
        """How many of the particles still wanted to go further than they may."""
        return {"share_capped": state}

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
        moved, share = self._stepped(particles, velocities, median(velocities)[None], step)
        others = moved, log_densities
        return self._with_rebirths(moved, log_densities, others, step, key), share

    def carry(self, points, velocities, noise_share, state, *, leaders, log_densities, step, key):
        """With the shift that the particles share; reborn, where they are stranded, beside them."""
        del noise_share, state
        shared = median(leaders.fit.velocities)[None]
        moved, share = self._stepped(points, velocities, shared, step)
        others = leaders.particles, leaders.log_densities
        return self._with_rebirths(moved, log_densities, others, step, key), share

    def _stepped(
        self,
        particles: Float[Array, "n d"],
        velocities: Float[Array, "n d"],
        shared: Float[Array, "1 d"],
        step: Int[Array, ""],
    ) -> tuple[Float[Array, "n d"], Float[Array, ""]]:
        decay = 0.1 ** jnp.clip(2 * step / self.horizon - 1, 0.0, 1.0)
        own = velocities - shared
        shift = self._capped(shared, COMMON_CAPS * self.cap) + self._capped(own, self.cap)
        is_capped = self.step_size * _speeds(own) > self.cap
        share = jnp.mean(is_capped.astype(particles.dtype))
        return particles + decay.astype(particles.dtype) * shift, share

    def _with_rebirths(
        self,
        moved: Float[Array, "n d"],
        log_densities: Float[Array, " n"],
        others: tuple[Float[Array, "m d"], Float[Array, " m"]],
        step: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> Float[Array, "n d"]:
        is_due = step % self.rebirth_every == self.rebirth_every - 1
        is_due = is_due | jnp.any(jnp.isneginf(log_densities))
        done = step / self.horizon
        return jax.lax.cond(
            is_due, lambda: _reborn(moved, log_densities, *others, done, key), lambda: moved
        )

    def _capped(self, velocities: Float[Array, "n d"], cap: float) -> Float[Array, "n d"]:
        return jnp.minimum(self.step_size, cap / (_speeds(velocities) + 1e-12)) * velocities


def _speeds(velocities: Float[Array, "n d"]) -> Float[Array, "n 1"]:
    return jnp.sqrt(jnp.mean(velocities**2, axis=1, keepdims=True))


def _reborn(
    particles: Float[Array, "n d"],
    log_densities: Float[Array, " n"],
    others: Float[Array, "m d"],
    their_log_densities: Float[Array, " m"],
    done: Float[Array, ""],
    key: PRNGKeyArray,
) -> Float[Array, "n d"]:
    """The particles, stranded ones half a unit beside a good one of the others."""
    num_particles, dim = particles.shape
    choice_key, jitter_key = jax.random.split(key)
    # Bisection needs finite ends.
    finite = jnp.maximum(their_log_densities, jnp.finfo(their_log_densities.dtype).min / 4)
    middle = median(finite)
    upper = quantile(finite, 0.9) - middle
    is_stranded = middle - log_densities > jnp.maximum(10.0 + 5.0 * dim, 5 * upper)
    is_stranded = (is_stranded & (done < 0.7)) | jnp.isneginf(log_densities)
    # The best of eight at random: hardly ever one of the worse half.
    picked = jax.random.randint(choice_key, (num_particles, 8), 0, len(others))
    best = jnp.argmax(their_log_densities[picked], axis=1)
    chosen = jnp.take_along_axis(picked, best[:, None], axis=1)[:, 0]
    jitter = 0.5 * jax.random.normal(jitter_key, particles.shape, particles.dtype)
    return jnp.where(is_stranded[:, None], others[chosen] + jitter, particles)
