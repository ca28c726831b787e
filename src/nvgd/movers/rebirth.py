"""Particles that die in one place and are born in another: what no flow can do."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd.crowds import in_crowds, num_crowds
from nvgd.robust import median, quantile

# Share of the run after which every particle stays its own.
LATEST = 0.7
# The density of particles is estimated from the distance to the so many-th neighbour,
NEIGHBOURS = 8
# among so many of them: the cost stays linear in their number.
MOST_NEIGHBOURS = 512
# Exponent of the weights.
EAGERNESS = 0.2
# In more dimensions the distance to a neighbour says too little about the density.
MOST_DIMENSIONS = 10
# Largest change of a particle's weight in one resampling, in nats.
LARGEST_CHANGE = 1.0


def reborn(
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
    is_stranded = (is_stranded & (done < LATEST)) | jnp.isneginf(log_densities)
    # Beside one of its own crowd, unless the others are another set of particles.
    is_own = len(others) == num_particles
    crowd = num_particles // num_crowds(num_particles) if is_own else len(others)
    picked = jax.random.randint(choice_key, (num_particles, 8), 0, crowd)

    def best(picked: Array, others: Array, their_log_densities: Array) -> Array:
        """Of eight at random: hardly ever one of the worse half."""
        first = jnp.argmax(their_log_densities[picked], axis=1)
        return others[jnp.take_along_axis(picked, first[:, None], axis=1)[:, 0]]

    arguments = picked, others, their_log_densities
    chosen = in_crowds(best, *arguments) if is_own else best(*arguments)
    jitter = 0.5 * jax.random.normal(jitter_key, particles.shape, particles.dtype)
    return jnp.where(is_stranded[:, None], chosen + jitter, particles)


def on_neighbours(particles: np.ndarray, is_lost: np.ndarray) -> np.ndarray:
    """The particles, lost ones where the nearest of the others is."""
    from scipy.spatial import KDTree

    found = particles[~is_lost]
    scales = found.std(axis=0)
    scales[scales == 0] = 1.0
    _, nearest = KDTree(found / scales).query(particles[is_lost] / scales)
    mended = particles.copy()
    mended[is_lost] = found[nearest]
    return mended


def resampled(
    particles: Float[Array, "n d"],
    log_densities: Float[Array, " n"],
    others: Float[Array, "m d"],
    key: PRNGKeyArray,
) -> Float[Array, "n d"]:
    """One systematic resampling of each crowd with weights ∝ (p/q)ᶜ, c = 0.2, copies moved aside.

    It is a step of the birth–death process of Lu, Lu and Nolen ("Accelerating Langevin sampling
    with birth–death", 2019), in which particles die at the rate log q − log p above its mean, so
    that within a mode, where the flow has made q/p constant, nothing happens, and between modes
    the constants become equal. q is estimated from the distance r to the eighth neighbour
    among the others, log q = −d log r.
    """
    dim = particles.shape[1]
    copy_key, jitter_key = jax.random.split(key)
    others = others[:MOST_NEIGHBOURS]
    squares = jnp.sum(others**2, axis=1)[:, None] + jnp.sum(particles**2, axis=1)
    squares = jnp.maximum(squares - 2 * others @ particles.T, 0.0)
    # A particle is its own first neighbour.
    radii = jnp.sqrt(quantile(squares, min(1.0, (NEIGHBOURS + 1) / len(others)))) + 1e-6
    excess = -dim * jnp.log(radii) - jnp.maximum(log_densities, -1e30)
    excess = EAGERNESS * (excess - median(excess))
    weights = jnp.exp(-jnp.clip(excess, -LARGEST_CHANGE, LARGEST_CHANGE))
    offset = jax.random.uniform(copy_key, (), particles.dtype)

    def drawn(weights: Array, particles: Array, radii: Array) -> tuple[Array, Array]:
        """The crowd's survivors, and how far each is moved aside: not at all if it is no copy."""
        size = len(weights)
        ends = size * jnp.cumsum(weights) / jnp.sum(weights)
        chosen = jnp.clip(jnp.searchsorted(ends, jnp.arange(size) + offset), 0, size - 1)
        is_copy = jnp.concatenate([jnp.zeros(1, bool), chosen[1:] == chosen[:-1]])
        return particles[chosen], jnp.where(is_copy, radii[chosen], 0.0)

    survivors, distances = in_crowds(drawn, weights, particles, radii)
    jitter = jax.random.normal(jitter_key, particles.shape, particles.dtype)
    return survivors + 0.3 * jitter * (distances / jnp.sqrt(float(dim)))[:, None]
