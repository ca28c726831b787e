"""Newton steps of the ensemble: particles that a noisy flow has left beside the posterior.

All particles move by the same shift δ, which raises the mean of their log densities. With s̄ the
mean score and H the curvature at their centre, δ = |H|⁻¹s̄. Unlike a climb of their centre, this
does not lead into the spikes that hierarchical models have: s̄ vanishes where the particles
represent the posterior.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nvgd.targets.density_checks import evenly_spaced
from nvgd.targets.row_passes import (
    Place,
    derivatives,
    log_densities,
    padded,
    place_of,
    prior_hessian,
)
from nvgd.targets.target import Target

# Particles whose scores are averaged, batches of which the curvature is estimated.
NUM_WATCHED, NUM_BATCHES = 8, 16
# The posterior is farther away than FAR·√d of its standard deviations: particles are moved, at most
# MOST_STEPS times, by the best of these multiples of a Newton step.
FAR, MOST_STEPS = 2.0, 6
SIZES = np.array([1.0, 0.5, 0.2, 0.05])
# A direction is at most this many times as wide as the particles are.
MOST_WIDENED = 10.0


def arrived(target: Target, particles: Float[Array, "n d"], seed: int) -> Float[Array, "n d"]:
    """The particles, moved together to where their mean score vanishes, if that is far away.

    Takes a pass over all rows with gradients at eight positions; a step takes another one, with
    values at 40.
    """
    for step in range(MOST_STEPS):
        place = place_of(particles)
        watched = particles[evenly_spaced(len(particles), NUM_WATCHED)]
        slope = np.asarray(target.on_all_data(watched).scores, np.float64).mean(axis=0)
        root = np.asarray(place.root, np.float64)
        curvatures, axes = np.linalg.eigh(_hessian(target, place, seed, step))
        curvatures = np.maximum(np.abs(curvatures), MOST_WIDENED**-2)
        along = axes.T @ (root.T @ slope)
        distance = np.sqrt(np.sum(along**2 / curvatures))
        # Also if it is not a number: a later pass names the row that is to blame.
        if not distance > FAR * target.dim**0.5:
            break
        shift = root @ axes @ (along / curvatures)
        ahead = np.asarray(watched) + SIZES[:, None, None] * shift
        positions = np.concatenate([np.asarray(watched)[None], ahead]).reshape(-1, target.dim)
        values = log_densities(target, jnp.asarray(positions, particles.dtype))
        means = values.reshape(-1, len(watched)).mean(axis=1)
        best = int(np.argmax(np.nan_to_num(means, nan=-np.inf)))
        if not best:
            break
        particles = particles + jnp.asarray(SIZES[best - 1] * shift, particles.dtype)
    return particles


def _hessian(target: Target, place: Place, seed: int, step: int) -> Float[np.ndarray, "d d"]:
    """The Hessian of the log density in units of the scatter, estimated from a few batches."""
    batches = target.batches(seed)
    assert batches is not None
    assert target.batch_size is not None
    taken = batches.take(step * NUM_BATCHES, NUM_BATCHES)
    total = np.asarray(prior_hessian(target, place), np.float64)
    weights = np.full(target.batch_size, target.num_rows / (target.batch_size * NUM_BATCHES))
    for i in range(NUM_BATCHES):
        batch = target.batch(jax.tree.map(lambda leaf, i=i: leaf[i], taken))
        total = total + np.asarray(derivatives(target, place, *padded(batch, weights)).hessian)
    if not np.isfinite(total).all():
        return np.eye(target.dim)
    return (total + total.T) / 2
