"""Capped steps in units of the particles' spread."""

from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from nvgd._support.errors import check_positive, plain
from nvgd._support.random_bits import random_signs
from nvgd._support.robust import can_fit_scatter, median, scale_about_zero
from nvgd.flow.aim import Aim
from nvgd.flow.movers.base import AbstractMover

# Cap of the displacement that all particles share, as a multiple of the cap of each particle.
COMMON_CAPS = 3.0
# Over the second half of a run, steps decay to this share; Adam's, which are mostly noise, further.
LAST_SHARE = 0.1
LAST_SHARE_OF_ADAM = 0.01
# Share of the run after which noise replaces the repulsion of few noisy particles. With the larger
# steps before, noise would leave networks far from where they fit the data.
NOISY_FROM = 0.8
# The median velocity is that of at most this many particles. Its error hardly matters: what v̄
# lacks is in v − v̄.
MOST_SORTED = 64
# Decay of the running means, which average about ten steps to separate signal from noise.
VELOCITY_MEMORY = 0.9
# Velocities of a coordinate are clipped at this multiple of their spread.
WILD = 3.0
# Lower bound of the factor by which noise shortens a step.
SMALLEST_GAIN = 0.01


class RunningMean(NamedTuple):
    """Running means of velocities and of their squared lengths, one row per velocity."""

    mean: Float[Array, "m d"]
    square: Float[Array, "m 1"]

    @classmethod
    def zero(cls, like: Float[Array, "m d"]) -> "RunningMean":
        """Zeros, with the shape of `like`."""
        return cls(jnp.zeros_like(like), jnp.zeros_like(like[:, :1]))

    def add(self, velocities: Float[Array, "m d"]) -> "RunningMean":
        """Update the means with the velocities of one more step."""
        square = jnp.sum(velocities**2, axis=1, keepdims=True)
        return RunningMean(
            VELOCITY_MEMORY * self.mean + (1 - VELOCITY_MEMORY) * velocities,
            VELOCITY_MEMORY * self.square + (1 - VELOCITY_MEMORY) * square,
        )

    def gain(self, step: Int[Array, ""]) -> Float[Array, "m 1"]:
        """|E v|²/E|v|², the share of v that is signal, with bias correction for the first steps."""
        forgotten = VELOCITY_MEMORY ** (step + 1.0)
        share = jnp.sum(self.mean**2, axis=1, keepdims=True) / (self.square + 1e-30)
        share = share / (1 - forgotten)
        # Expected share under pure noise.
        chance = (1 - VELOCITY_MEMORY) / (1 + VELOCITY_MEMORY) * (1 + forgotten) / (1 - forgotten)
        chance = jnp.where(step < 5, 0.0, chance)
        gain = jnp.clip((share - chance) / (1 - chance), SMALLEST_GAIN, 1.0)
        return gain.astype(self.mean.dtype)


class CappedState(NamedTuple):
    """Running statistics of the velocities; each kind of step updates those it needs."""

    shared: RunningMean
    """Means of v̄."""
    own: RunningMean
    """Means of v − v̄, or of v where each coordinate has a cap."""
    moments: optax.OptState
    """State of Adam."""
    share_capped: Float[Array, ""]
    """Share of particles, or of coordinates where these have the caps, whose last step was
    capped."""
    share_noise: Float[Array, ""]
    """Mean over the particles of the share of v − v̄ that is noise of minibatches."""


class Capped(AbstractMover[CappedState]):
    """Euler steps with a cap on each particle's displacement.

        x ← x + ⌈v̄⌉₃ + ⌈v − v̄⌉₁,   ⌈v⌉ₖ = min(ε, kc/|v|) v

    |v| is the root mean square over coordinates, and v̄ is the median velocity, which all particles
    share. In coordinates with unit spread, no particle moves by more than c relative to
    the others, however steep the density is at its position, and a capped particle does not slow
    down the others. The shared displacement may be three times as long, so that a distant target is
    reached soon. Over the second half of a run of known length (set by `sample`), ε and c decay to
    a tenth.

    With minibatches, v is signal plus noise, and most of the noise is common to all particles. v̄
    and v − v̄ are multiplied by the gain |E v|²/E|v|², with expectations over the last ten steps.
    With this gain the expected error falls fastest, and steps shrink once v is only noise (Schaul,
    Zhang and LeCun, "No more pesky learning rates", 2013). With this safeguard, ε is three times as
    large for v̄.

    With fewer than 1.25 particles per dimension, their scatter cannot be estimated, and coordinates
    can only be scaled one by one. Each coordinate then has a cap: c divided by the root mean square
    of its velocities over the particles. v is averaged over ten steps, after velocities beyond
    three times their spread are clipped, so that outliers do not slow down the other particles.

    With few particles and minibatches, noise would reach these caps. Each coordinate of each
    particle takes Adam's step c m/(√s + c/ε) instead, where m and s are means of v and v² over ten
    steps. The step is εv if v is small and steady, c if v is large and steady, and a quarter of
    that if v is noise. These steps decay to a hundredth, because noise moves the particles as long
    as they move at all. A share (m²/s)² of a step does not decay: a coordinate that still drifts,
    such as the noise level of networks whose residuals shrink with the steps, must not be left
    behind. Particles of a network lie in different modes, and their repulsion does not see how wide
    a mode is. In the last fifth of a run, noise replaces it where the direction allows that:
    with a = c/(√s + c/ε) times the decay, as much as Langevin steps of size a need beyond the noise
    of the batch, of variance max(2a − a²s, 0).

    Arguments:
        step_size: ε.
        cap: c.

    Examples:
        >>> flow = nvgd.ParticleFlow(
        ...     nvgd.coordinates.Adaptive(), nvgd.directions.Kernel(), nvgd.movers.Capped(0.1)
        ... )
    """

    step_size: float = eqx.field(default=0.1, converter=plain)
    cap: float = eqx.field(default=0.1, converter=plain)
    # An array, so that runs of different lengths share one compiled program.
    horizon: Float[Array, ""] = eqx.field(default=jnp.inf, converter=jnp.asarray)

    def __check_init__(self):
        check_positive("step_size", self.step_size)
        check_positive("cap", self.cap)

    @property
    def _adam(self) -> optax.GradientTransformation:
        return optax.scale_by_adam(VELOCITY_MEMORY, VELOCITY_MEMORY, eps=self.cap / self.step_size)

    def for_run(self, num_steps):
        """The mover with step sizes that decay over the second half of the run."""
        return eqx.tree_at(lambda mover: mover.horizon, self, jnp.asarray(float(num_steps)))

    def init(self, particles):
        """Zero means and moments."""
        return CappedState(
            RunningMean.zero(particles[:1]),
            RunningMean.zero(particles),
            self._adam.init(particles),
            jnp.zeros((), particles.dtype),
            jnp.zeros((), particles.dtype),
        )

    def diagnostics(self, state):
        """The share of capped particles or coordinates, which falls as the run converges.

        With minibatches, also the share of noise in the particles' own velocities.
        """
        return {"share_capped": state.share_capped, "share_noise": state.share_noise}

    def __call__(self, aim, state, *, step, key):
        """One capped step."""
        done = jnp.clip(2 * step / self.horizon - 1, 0.0, 1.0).astype(aim.particles.dtype)
        if can_fit_scatter(*aim.velocities.shape):
            displacements, state = self._by_particle(aim.velocities, state, step, aim.view.is_noisy)
        elif aim.view.is_noisy:
            displacements, state = self._by_adam(aim, state, step, LAST_SHARE_OF_ADAM**done, key)
            return aim.particles + displacements, state
        else:
            displacements, state = self._by_coordinate(aim.velocities, state, step)
        return aim.particles + LAST_SHARE**done * displacements, state

    def _by_particle(
        self,
        velocities: Float[Array, "n d"],
        state: CappedState,
        step: Int[Array, ""],
        is_noisy: bool,
    ) -> tuple[Float[Array, "n d"], CappedState]:
        """Cap the shared displacement, and that of each particle relative to the others."""
        shared = median(velocities, MOST_SORTED)[None]
        own = velocities - shared
        if is_noisy:
            state = state._replace(shared=state.shared.add(shared), own=state.own.add(own))
            # The shared velocity allows larger steps: the gain guards against overshooting.
            shared = COMMON_CAPS * state.shared.gain(step) * shared
            gain = state.own.gain(step)
            state = state._replace(share_noise=1 - jnp.mean(gain))
            own = gain * own
        share_capped = _share(self.step_size * _speeds(own) > self.cap, own)
        state = state._replace(share_capped=share_capped)
        shift = self._capped(shared, COMMON_CAPS * self.cap)
        return shift + self._capped(own, self.cap), state

    def _by_adam(
        self,
        aim: Aim,
        state: CappedState,
        step: Int[Array, ""],
        decay: Float[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "n d"], CappedState]:
        """Adam's step for each coordinate of each particle, and late in a run the missing noise."""
        velocities, is_late = aim.velocities, step >= NOISY_FROM * self.horizon
        if aim.without_repulsion is not None:
            velocities = jnp.where(is_late, aim.without_repulsion, velocities)
        updates, moments = self._adam.update(velocities, state.moments)
        steps, found = jnp.asarray(updates), cast(optax.ScaleByAdamState, moments)
        # A steady velocity v = c/ε, which just reaches the cap, has an update of ½.
        share_capped = _share(jnp.mean(steps**2, axis=0) > 0.25, velocities)
        state = state._replace(moments=moments, share_capped=share_capped)
        # m²/s of the unbiased means is one for a constant velocity and about .05 for noise.
        scale = 1 - VELOCITY_MEMORY ** jnp.asarray(found.count, velocities.dtype)
        mean, square = jnp.asarray(found.mu) / scale, jnp.asarray(found.nu) / scale
        shares = jnp.maximum(decay, (mean**2 / (square + 1e-12)) ** 2)
        displacements = shares * self.cap * steps
        if aim.without_repulsion is None:
            return displacements, state

        def noise() -> Float[Array, "n d"]:
            sizes = shares * self.cap / (jnp.sqrt(square) + self.cap / self.step_size)
            missing = jnp.maximum(2 * sizes - sizes**2 * square, 0.0)
            return jnp.sqrt(missing) * random_signs(key, missing.shape, missing.dtype)

        return displacements + jax.lax.cond(is_late, noise, lambda: jnp.zeros_like(steps)), state

    def _by_coordinate(
        self, velocities: Float[Array, "n d"], state: CappedState, step: Int[Array, ""]
    ) -> tuple[Float[Array, "n d"], CappedState]:
        """Cap each coordinate, with one cap for all particles."""
        most = WILD * scale_about_zero(velocities)
        state = state._replace(own=state.own.add(jnp.clip(velocities, -most, most)))
        mean = state.own.mean / (1 - VELOCITY_MEMORY ** (step + 1.0)).astype(velocities.dtype)
        # Relative to the largest value, so that squares do not underflow.
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
