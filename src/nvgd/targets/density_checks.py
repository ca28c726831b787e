"""Comparisons of particles with the log density of all rows, one pass each."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nvgd.targets.climbs import has_barrier, points_between
from nvgd.targets.row_passes import log_densities, place_of
from nvgd.targets.target import Target

# Particles at which log densities are compared.
NUM_COMPARED = 32
# This many particles left in a probable place indicate another mode; at most MOST_LEFT are
# examined.
FEWEST_LEFT, MOST_LEFT = 2, 16


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
    gather in one of them. Takes one pass over all rows, and another if there are such particles:
    a particle beside the same mode has no barrier on the way to it.

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
    left = np.asarray(old)[is_far & (values[:num] > min(typical))][:MOST_LEFT]
    if len(left) < FEWEST_LEFT:
        return False
    centre = np.asarray(place.anchor)
    between = points_between(left, centre)
    ends = np.concatenate([left, centre[None], between.reshape(-1, len(centre))])
    values = log_densities(target, jnp.asarray(ends, positions.dtype))
    peaks, at_centre, on_the_way = np.split(values, [len(left), len(left) + 1])
    is_apart = has_barrier(on_the_way.reshape(-1, len(left)), peaks, float(at_centre[0]))
    return int(is_apart.sum()) >= FEWEST_LEFT


def evenly_spaced(num_particles: int, number: int = NUM_COMPARED) -> np.ndarray:
    """Indices of evenly spaced particles; of all, if there are fewer."""
    number = min(number, num_particles)
    return np.linspace(0, num_particles - 1, number).round().astype(int)
