"""Capped steps in units of the particles' own spread."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from nvgd._support.errors import check_positive, plain
from nvgd._support.robust import can_fit_scatter, median, scale_about_zero
from nvgd.flow.movers.base import AbstractMover

# How many times further than alone the particles may go together.
COMMON_CAPS = 3.0
# How many times further steps of Adam may go, which noise keeps short by itself.
NOISY_CAPS = 2.0
# Velocities are averaged over about ten steps, to tell signal from noise.
MEMORY = 0.9
# Velocities of a coordinate beyond this multiple of their spread are cut.
WILD = 3.0
# However noisy, steps are not made smaller than this share.
SMALLEST_GAIN = 0.01


class RunningMean(NamedTuple):
    """Means over the last steps of velocities, and of their squared lengths, one row each."""

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
    """Share of the particles (or coordinates, where these have the caps) that the cap held back in
    the last step."""


class Capped(AbstractMover[CappedState]):
    """x ← x + ⌈v̄⌉₃ + ⌈v − v̄⌉₁ with ⌈v⌉ₖ = min(ε, kc/|v|) v: a cap for each particle.

    |v| is the root mean square over coordinates and v̄ the median of the velocities, which all
    particles share. For coordinates in which they have unit spread: no particle moves by more than
    the share c of it against the others, however steep the density is where it stands, and none
    holds up the others; all together may go three times as far, so that a distant target is soon
    reached. Over the second half of a run whose length is known (`sample` tells), ε and c fall to
    a tenth.

    With minibatches v is a signal with noise, most of which all particles share. v̄ and v − v̄ are
    multiplied by |E v|²/E|v|², the expectations over the last ten steps: the gain that makes the
    expected error fall fastest, so that steps shrink once noise is all there is (Schaul, Zhang and
    LeCun, "No more pesky learning rates", 2013). With that guard ε is three times as large for v̄.

    With too few particles to estimate their scatter (fewer than 1.25 per dimension) the coordinates
    can only be scaled one by one. A cap for each coordinate, c over the root mean square of its
    velocities over particles, takes the place of those above; v is averaged over ten steps then.
    Velocities beyond three times their spread are cut, so that a wild one holds up no others.
    With minibatches noise would fill those caps. Each coordinate of each particle makes Adam's step
    2c m/(√s + c/ε) instead, m and s the means of v and v² over ten steps: 2εv if v is small and
    steady, 2c if it is large and steady, a quarter of that if it is noise.

    Arguments:
        step_size: ε.
        cap: c.
    """

    step_size: float = eqx.field(default=0.1, converter=plain)
    cap: float = eqx.field(default=0.1, converter=plain)
    # An array, so that runs of different lengths share one compiled program.
    horizon: Float[Array, ""] = eqx.field(default=jnp.inf, converter=jnp.asarray)

    def __check_init__(self):
        check_positive("step_size", self.step_size)
        check_positive("cap", self.cap)

    @property
    def takes_noise(self):
        """A cap would cut it."""
        return False

    @property
    def _adam(self) -> optax.GradientTransformation:
        return optax.scale_by_adam(MEMORY, MEMORY, eps=self.cap / self.step_size)

    def for_run(self, num_steps):
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

    def __call__(self, aim, state, *, step, key):
        """One capped step."""
        del key
        if can_fit_scatter(*aim.velocities.shape):
            displacements, state = self._by_particle(aim.velocities, state, step, aim.view.is_noisy)
        elif aim.view.is_noisy:
            displacements, state = self._by_adam(aim.velocities, state)
        else:
            displacements, state = self._by_coordinate(aim.velocities, state, step)
        decay = 0.1 ** jnp.clip(2 * step / self.horizon - 1, 0.0, 1.0)
        return aim.particles + decay.astype(aim.particles.dtype) * displacements, state

    def _by_particle(
        self,
        velocities: Float[Array, "n d"],
        state: CappedState,
        step: Int[Array, ""],
        is_noisy: bool,
    ) -> tuple[Float[Array, "n d"], CappedState]:
        """All particles together, and each against the others."""
        shared = median(velocities)[None]
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

    def _by_adam(
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
        self, velocities: Float[Array, "n d"], state: CappedState, step: Int[Array, ""]
    ) -> tuple[Float[Array, "n d"], CappedState]:
        """Each coordinate with a cap that all particles share."""
        most = WILD * scale_about_zero(velocities)
        state = state._replace(own=state.own.add(jnp.clip(velocities, -most, most)))
        mean = state.own.mean / (1 - MEMORY ** (step + 1.0)).astype(velocities.dtype)
        # In units of the largest, so that squares do not underflow.
        largest = jnp.max(jnp.abs(mean), axis=0) + 1e-12
        speeds = largest * jnp.sqrt(jnp.mean((mean / largest) ** 2, axis=0))
        share_capped = _share(self.step_size * speeds > self.cap, mean)
        sizes = jnp.minimum(self.step_size, self.cap / (speeds + 1e-12))
        return sizes * mean, state._replace(share_capped=share_capped)

    def _capped(self, velocities: Float[Array, "n d"], cap: float) -> Float[Array, "n d"]:
        return jnp.minimum(self.step_size, cap / (_speeds(velocities) + 1e-12)) * velocities


def _share(is_true: Bool[Array, "..."], like: Float[Array, "..."]) -> Float[Array, ""]:
    return jnp.mean(is_true.astype(like.dtype))


def _speeds(velocities: Float[Array, "n d"]) -> Float[Array, "n 1"]:
    return jnp.sqrt(jnp.mean(velocities**2, axis=1, keepdims=True))
