"""Capped steps in units of the particles' own spread."""

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from nvgd.errors import check_count, check_positive, plain
from nvgd.movers.base import AbstractMover
from nvgd.movers.rebirth import LATEST, MOST_DIMENSIONS, reborn, resampled
from nvgd.robust import can_fit_scatter, median, spread

if TYPE_CHECKING:
    from nvgd.views import View

# How many times further than alone the particles may go together.
COMMON_CAPS = 3.0
# How many times further steps of Adam may go, which noise keeps short by itself.
NOISY_CAPS = 2.0
# Velocities are averaged over about ten steps, to tell signal from noise.
MEMORY = 0.9
# Velocities of a coordinate beyond so many times their spread are wild.
WILD = 3.0
# However noisy, steps are not made smaller than this share.
SMALLEST_GAIN = 0.01
# When resampling begins, in periods of it.
EARLIEST = 5


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
    """What the last steps were like; each kind of step keeps up what it needs."""

    shared: RunningMean
    own: RunningMean
    moments: optax.OptState
    """Adam's."""
    share_capped: Float[Array, ""]
    """Of the particles that wanted to go further in the last step than they may; of the
    coordinates, where these have the caps."""


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
    LeCun, "No more pesky learning rates", 2013). With that guard ε is three times as large for v̄.

    With too few particles to know their scatter (fewer than 1.25 a dimension) the coordinates can
    only be scaled one by one. A cap for each coordinate, c over the root mean square of its
    velocities over particles, takes the place of those above; v is averaged over ten steps then.
    Velocities beyond three times their spread are cut, so that a wild one holds up no others.
    With minibatches noise would fill those caps. Each coordinate of each particle makes Adam's step
    2c m/(√s + c/ε) instead, m and s the means of v and v² over ten steps: 2εv if v is small and
    steady, 2c if it is large and steady, a quarter of that if it is noise.

    Between modes no path leads at all. Every so many steps, from the hundredth to 70 % of the run,
    the particles are resampled a little towards where there are too few (`nvgd.movers.rebirth`):
    the weights of separate modes settle so. Not with minibatches, whose log densities are too
    noisy, and not in more than ten dimensions, where so few particles do not tell a density.

    Particles that are stranded, with a log density so far below the others' that no path of
    sensible length leads back, are reborn every so many steps beside one of the better half: until
    70 % of the run, those more than 10 + 5d and five times the upper spread below the median. A
    particle that stepped to where the log density is not finite is reborn at once.

    Arguments:
        step_size: ε.
        cap: c.
        rebirth_every: steps between rebirths, and between resamplings, which begin after five times
            as many.
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

    @property
    def _adam(self) -> optax.GradientTransformation:
        return optax.scale_by_adam(MEMORY, MEMORY, eps=self.cap / self.step_size)

    def for_run(self, num_steps: int) -> "AbstractMover":
        """Step sizes that fall towards the run's end."""
        return eqx.tree_at(lambda mover: mover.horizon, self, jnp.asarray(float(num_steps)))

    def init(self, particles):
        """No steps yet."""
        return CappedState(
            RunningMean.zero(particles[:1]),
            RunningMean.zero(particles),
            self._adam.init(particles),
            jnp.zeros((), particles.dtype),
        )

    def diagnostics(self, state):
        """How many of the particles are still under way."""
        return {"share_capped": state.share_capped}

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
        is_noisy = view is not None and view.batch is not None
        moved, state = self._moved(particles, velocities, velocities, state, step, is_noisy)
        others = moved, log_densities
        return self._with_rebirths(moved, log_densities, others, view, step, key), state

    def carry(self, points, velocities, noise_share, state, *, leaders, log_densities, step, key):
        """With the shift and the caps of the particles; reborn, if stranded, beside them."""
        del noise_share
        is_noisy = leaders.view.batch is not None
        theirs = leaders.fit.velocities
        moved, state = self._moved(points, velocities, theirs, state, step, is_noisy)
        others = leaders.particles, leaders.log_densities
        return self._with_rebirths(moved, log_densities, others, leaders.view, step, key), state

    def _moved(
        self,
        particles: Float[Array, "n d"],
        velocities: Float[Array, "n d"],
        of_all: Float[Array, "m d"],
        state: CappedState,
        step: Int[Array, ""],
        is_noisy: bool,
    ) -> tuple[Float[Array, "n d"], CappedState]:
        """One step; `of_all` are the velocities that say what is shared and what is fast."""
        if can_fit_scatter(*of_all.shape):
            shared = median(of_all)[None]
            displacements, state = self._displacements(velocities, shared, state, step, is_noisy)
        elif is_noisy:
            displacements, state = self._adams(velocities, state)
        else:
            displacements, state = self._by_coordinate(velocities, of_all, state, step)
        decay = 0.1 ** jnp.clip(2 * step / self.horizon - 1, 0.0, 1.0)
        return particles + decay.astype(particles.dtype) * displacements, state

    def _with_rebirths(
        self,
        moved: Float[Array, "n d"],
        log_densities: Float[Array, " n"],
        others: tuple[Float[Array, "m d"], Float[Array, " m"]],
        view: "View | None",
        step: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> Float[Array, "n d"]:
        phase = step % self.rebirth_every
        is_lost = jnp.any(jnp.isneginf(log_densities))
        done = step / self.horizon
        rebirth_key, resampling_key = jax.random.split(key)
        moved = jax.lax.cond(
            (phase == self.rebirth_every - 1) | is_lost,
            lambda: reborn(moved, log_densities, *others, done, rebirth_key),
            lambda: moved,
        )
        num_others, dim = others[0].shape
        is_crowd = dim <= MOST_DIMENSIONS and can_fit_scatter(num_others, dim)
        if view is None or view.batch is not None or not is_crowd:
            return moved
        # Early, the particles on their way would die for those that have arrived. Never together
        # with rebirths: a log density is that of the place where its particle was before.
        is_due = (phase == self.rebirth_every // 2 - 1) & ~is_lost
        is_due = is_due & (step // self.rebirth_every >= EARLIEST) & (done < LATEST)
        volumes = view.frame.log_volumes(moved)
        return jax.lax.cond(
            is_due,
            lambda: resampled(moved, log_densities + volumes, others[0], resampling_key),
            lambda: moved,
        )

    def _displacements(
        self,
        velocities: Float[Array, "n d"],
        shared: Float[Array, "1 d"],
        state: CappedState,
        step: Int[Array, ""],
        is_noisy: bool,
    ) -> tuple[Float[Array, "n d"], CappedState]:
        """Together, and each particle against the others."""
        own = velocities - shared
        if is_noisy:
            state = state._replace(shared=state.shared.add(shared), own=state.own.add(own))
            # Together the particles can afford larger steps: the gain guards against overshooting.
            shared = COMMON_CAPS * state.shared.gain(step) * shared
            own = state.own.gain(step) * own
        share_capped = _share(self.step_size * _speeds(own) > self.cap, own)
        state = state._replace(share_capped=share_capped)
        shift = self._capped(shared, COMMON_CAPS * self.cap)
        return shift + self._capped(own, self.cap), state

    def _adams(
        self, velocities: Float[Array, "n d"], state: CappedState
    ) -> tuple[Float[Array, "n d"], CappedState]:
        """Each coordinate of each particle by its own last velocities."""
        updates, moments = self._adam.update(velocities, state.moments)
        steps = jnp.asarray(updates)
        # Steady velocities that just come to the cap make steps of half of it.
        share_capped = _share(jnp.mean(steps**2, axis=0) > 0.25, velocities)
        state = state._replace(moments=moments, share_capped=share_capped)
        return NOISY_CAPS * self.cap * steps, state

    def _by_coordinate(
        self,
        velocities: Float[Array, "n d"],
        of_all: Float[Array, "m d"],
        state: CappedState,
        step: Int[Array, ""],
    ) -> tuple[Float[Array, "n d"], CappedState]:
        """Each coordinate with a cap that all particles share."""
        most = WILD * spread(of_all)
        state = state._replace(own=state.own.add(jnp.clip(velocities, -most, most)))
        mean = state.own.mean / (1 - MEMORY ** (step + 1.0)).astype(velocities.dtype)
        among = mean if of_all is velocities else jnp.clip(of_all, -most, most)
        # In units of the largest, whose square may be none.
        largest = jnp.max(jnp.abs(among), axis=0) + 1e-12
        speeds = largest * jnp.sqrt(jnp.mean((among / largest) ** 2, axis=0))
        share_capped = _share(self.step_size * speeds > self.cap, mean)
        sizes = jnp.minimum(self.step_size, self.cap / (speeds + 1e-12))
        return sizes * mean, state._replace(share_capped=share_capped)

    def _capped(self, velocities: Float[Array, "n d"], cap: float) -> Float[Array, "n d"]:
        return jnp.minimum(self.step_size, cap / (_speeds(velocities) + 1e-12)) * velocities


def _share(is_true: Bool[Array, "..."], like: Float[Array, "..."]) -> Float[Array, ""]:
    return jnp.mean(is_true.astype(like.dtype))


def _speeds(velocities: Float[Array, "n d"]) -> Float[Array, "n 1"]:
    return jnp.sqrt(jnp.mean(velocities**2, axis=1, keepdims=True))
