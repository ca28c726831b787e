"""Comparisons of particles with the log density of all rows, one pass each."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nvgd.targets.row_passes import log_densities, place_of
from nvgd.targets.target import Target

# Particles at which log densities are compared.
NUM_COMPARED = 32
# So many particles that were left in a probable place tell of another mode.
FEWEST_LEFT = 2


def density_error(
    target: Target, particles: Float[Array, "n d"], approximate: Float[Array, " n"]
) -> float:
    """Standard deviation over particles of an error in their log densities, in nats.

    Takes one pass over all rows.

    Arguments:
        approximate: the log densities to be judged.
    """
    chosen = evenly_spaced(len(particles))
    exact = log_densities(target, jnp.asarray(particles)[chosen])
    return float(np.std(np.asarray(approximate, np.float64)[chosen] - exact))


def leaves_behind(target: Target, before: Float[Array, "n d"], after: Float[Array, "n d"]) -> bool:
    """Whether particles have moved away from places that are as probable as where they went.

    A subsample with one anchor does not represent several distant modes: chains on it would all
    gather in one of them. Takes one pass over all rows.

    Arguments:
        before, after: particles before and after they moved.
    """
    place, num = place_of(after), 2 * NUM_COMPARED
    old = jnp.asarray(before)[evenly_spaced(len(before), num)]
    positions = jnp.concatenate([old, jnp.asarray(after)[evenly_spaced(len(after))]])
    num = len(old)
    values = log_densities(target, positions)
    distances = np.linalg.norm(place.expressed(positions), axis=1)
    is_far = distances[:num] > 2 * distances[num:].max()
    # A noisy flow scatters particles around every mode, so that those far away are compared with
    # those that were near already, too.
    typical = [
        np.median(values[num:]),
        np.median(values[:num][~is_far]) if any(~is_far) else np.inf,
    ]
    return int(np.sum(is_far & (values[:num] > min(typical)))) >= FEWEST_LEFT


def evenly_spaced(num_particles: int, number: int = NUM_COMPARED) -> np.ndarray:
    """Rows of so many particles, evenly spaced; of all, if there are fewer."""
    number = min(number, num_particles)
    return np.linspace(0, num_particles - 1, number).round().astype(int)
