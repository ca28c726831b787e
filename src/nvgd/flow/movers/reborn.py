"""Rebirth and resampling: moves between distant places, which a flow cannot make."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from nvgd._support.errors import InputError, check_count, check_kind, plain
from nvgd._support.particle_groups import by_group, group_by_group, num_groups
from nvgd._support.random_bits import random_indices, random_normals, random_uniforms
from nvgd._support.resampling import systematic
from nvgd._support.robust import can_fit_scatter, median, quantiles
from nvgd.flow.aim import Aim
from nvgd.flow.movers.base import AbstractMover, check_memoryless
from nvgd.flow.movers.metropolis import Metropolis
from nvgd.flow.movers.momentum import Momentum
from nvgd.flow.movers.resampled import Resampled

# Share of the run after which particles are neither reborn nor resampled, except that particles
# without a finite log density are always reborn.
LATEST = 0.7
# Number of periods (`every` steps each) before the first resampling.
EARLIEST = 5
# The density of the particles is estimated from the distance to their k-th nearest neighbour,
NEIGHBOURS = 8
# among at most this many particles, so that the cost is linear in the number of particles.
MOST_NEIGHBOURS = 512
# Exponent of the resampling weights.
EAGERNESS = 0.2
# In more dimensions, nearest-neighbour distances are a poor estimate of the density.
MOST_DIMENSIONS = 10
# Largest change of a particle's log weight in one resampling.
LARGEST_CHANGE = 1.0
# Streams of the key, for choices among particles and for their jitter.
CHOICE_STREAM, JITTER_STREAM = 0, 1


class Reborn(AbstractMover[Any]):
    """Wraps a mover: stranded particles are reborn, and modes exchange particles by resampling.

    A particle is stranded if its log density is below the median by more than 10 + 5d, and by more
    than five times the upper spread (the 90 % quantile minus the median): a flow would take too
    long to bring it back. Until 70 % of the run, stranded particles are moved every `every` steps
    next to a particle of high log density. Particles without a finite log density are moved at
    once.

    A flow cannot move particles between separate modes. Every `every` steps, from step 5 · `every`
    to 70 % of the run, the particles are weakly resampled towards places that have too few of them,
    so that the weights of separate modes settle. There is no resampling with minibatches, whose log
    densities are too noisy, and above ten dimensions, where the density of the particles cannot be
    estimated.

    Arguments:
        mover: takes the steps; a mover without noise, such as `Capped()`.
        every: number of steps between rebirths, and between resamplings.

    Examples:
        >>> mover = nvgd.movers.Reborn(nvgd.movers.Capped())
    """

    mover: AbstractMover
    every: int = eqx.field(default=20, converter=plain)
    horizon: Float[Array, ""] = eqx.field(default=jnp.inf, converter=jnp.asarray)

    rescues: ClassVar[bool] = True

    def __check_init__(self):
        check_kind("mover", self.mover, AbstractMover, "movers.Capped()")
        check_count("every", self.every)
        if isinstance(self.mover, Metropolis | Momentum | Resampled | Reborn):
            raise InputError(
                f"Reborn relocates particles and cannot wrap {type(self.mover).__name__}, which "
                "accepts, copies or remembers them: give Capped(), Optax(...) or Euler(step_size)."
            )

    @property
    def evaluates_target(self):
        """Whether the inner mover does."""
        return self.mover.evaluates_target

    def init(self, particles):
        """State of the inner mover."""
        return self.mover.init(particles)

    def diagnostics(self, state):
        """Diagnostics of the inner mover."""
        return self.mover.diagnostics(state)

    def extra_gradients(self, num_moved):
        """Gradients of the inner mover."""
        return self.mover.extra_gradients(num_moved)

    def for_run(self, num_steps):
        """The mover for a run of this length, after 70 % of which rebirths end."""
        parts = self.mover.for_run(num_steps), jnp.asarray(float(num_steps))
        return eqx.tree_at(lambda mover: (mover.mover, mover.horizon), self, parts)

    def check_parts(self, coordinates, direction):
        """Delegate to the inner mover."""
        check_memoryless("Reborn", direction)
        self.mover.check_parts(coordinates, direction)

    def check_target(self, target):
        """Delegate to the inner mover."""
        self.mover.check_target(target)

    def __call__(self, aim, state, *, step, key):
        """One step of the inner mover, then rebirths or resampling if due."""
        moved, state = self.mover(aim, state, step=step, key=jax.random.fold_in(key, 0))
        phase, done = step % self.every, step / self.horizon
        log_densities = aim.log_densities
        is_lost = jnp.any(jnp.isneginf(log_densities))
        moved = jax.lax.cond(
            (phase == self.every - 1) | is_lost,
            lambda: _reborn(moved, log_densities, done, key),
            lambda: moved,
        )
        if not self._can_resample(aim):
            return moved, state
        # Early resampling would replace particles on their way by those that have arrived. It never
        # follows rebirths in the same step: log densities are those before the move.
        is_due = (phase == self.every // 2 - 1) & ~is_lost
        is_due = is_due & (step // self.every >= EARLIEST) & (done < LATEST)
        volumes = aim.frame.log_volumes(moved)
        moved = jax.lax.cond(
            is_due,
            lambda: _resampled(moved, log_densities + volumes, key),
            lambda: moved,
        )
        return moved, state

    def _can_resample(self, aim: Aim) -> bool:
        num_particles, dim = aim.particles.shape
        is_dense = dim <= MOST_DIMENSIONS and can_fit_scatter(num_particles, dim)
        return is_dense and not aim.view.is_noisy


def _reborn(
    particles: Float[Array, "n d"],
    log_densities: Float[Array, " n"],
    done: Float[Array, ""],
    key: PRNGKeyArray,
) -> Float[Array, "n d"]:
    """Move stranded particles next to good ones of their group, with jitter of scale ½."""
    num_particles, dim = particles.shape
    # Finite, so that the differences below are.
    finite = jnp.maximum(log_densities, jnp.finfo(log_densities.dtype).min / 4)
    middle, high = quantiles(finite, 0.5, 0.9)
    is_stranded = middle - log_densities > jnp.maximum(10.0 + 5.0 * dim, 5 * (high - middle))
    is_stranded = (is_stranded & (done < LATEST)) | jnp.isneginf(log_densities)
    group_size = num_particles // num_groups(num_particles)
    picked = random_indices(key, (num_particles, 8), group_size, CHOICE_STREAM)

    def best(picked: Int[Array, "m 8"], particles: Array, log_densities: Array) -> Array:
        """The best of eight random particles, which is rarely one of the worse half."""
        first = jnp.argmax(log_densities[picked], axis=1)
        return particles[jnp.take_along_axis(picked, first[:, None], axis=1)[:, 0]]

    chosen = by_group(best, picked, particles, log_densities)
    jitter = 0.5 * random_normals(key, particles.shape, particles.dtype, JITTER_STREAM)
    return jnp.where(is_stranded[:, None], chosen + jitter, particles)


def _resampled(
    particles: Float[Array, "n d"], log_densities: Float[Array, " n"], key: PRNGKeyArray
) -> Float[Array, "n d"]:
    """Systematic resampling of each group with weights ∝ (p/q)ᶜ, c = 0.2; copies are jittered.

    This is a step of the birth–death process of Lu, Lu and Nolen ("Accelerating Langevin sampling
    with birth–death", 2019), in which particles die at the rate log q − log p relative to its mean.
    Within a mode, where the flow has made q/p constant, nothing changes; between modes, the
    constants become equal. q is estimated from the distance r to the eighth nearest neighbour,
    log q = −d log r.
    """
    dim = particles.shape[1]
    others = particles[:MOST_NEIGHBOURS]

    def to_neighbour(particles: Array) -> Array:
        """To the eighth nearest neighbour; a particle is its own nearest."""
        squares = jnp.sum(others**2, axis=1)[:, None] + jnp.sum(particles**2, axis=1)
        squares = jnp.maximum(squares - 2 * others @ particles.T, 0.0)
        return jnp.sqrt(_smallest(squares, min(NEIGHBOURS + 1, len(others)))) + 1e-6

    radii = group_by_group(to_neighbour, particles)
    excess = -dim * jnp.log(radii) - jnp.maximum(log_densities, -1e30)
    excess = EAGERNESS * (excess - median(excess))
    weights = jnp.exp(-jnp.clip(excess, -LARGEST_CHANGE, LARGEST_CHANGE))
    offset = random_uniforms(key, (), particles.dtype, CHOICE_STREAM)

    def drawn(weights: Array, particles: Array, radii: Array) -> tuple[Array, Array]:
        """The group's survivors, and the scale of their jitter: zero unless they are copies."""
        chosen = systematic(weights, len(weights), offset)
        is_copy = jnp.concatenate([jnp.zeros(1, bool), chosen[1:] == chosen[:-1]])
        return particles[chosen], jnp.where(is_copy, radii[chosen], 0.0)

    survivors, distances = by_group(drawn, weights, particles, radii)
    jitter = random_normals(key, particles.shape, particles.dtype, JITTER_STREAM)
    return survivors + 0.3 * jitter * (distances / jnp.sqrt(float(dim)))[:, None]


def _smallest(values: Float[Array, "m n"], k: int) -> Float[Array, " n"]:
    """The k-th smallest of the different values in each column; a sort would take much longer."""

    def drop(_: Array | int, values: Array) -> Array:
        return jnp.where(values <= jnp.min(values, axis=0), jnp.inf, values)

    return jnp.min(jax.lax.fori_loop(0, k - 1, drop, values), axis=0)


def onto_nearest(particles: np.ndarray, is_lost: np.ndarray) -> np.ndarray:
    """Replace lost particles by copies of the nearest other particles, on the host."""
    from scipy.spatial import KDTree

    found = particles[~is_lost]
    scales = found.std(axis=0)
    scales[scales == 0] = 1.0
    _, nearest = KDTree(found / scales).query(particles[is_lost] / scales)
    mended = particles.copy()
    mended[is_lost] = found[nearest]
    return mended
