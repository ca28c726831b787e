"""What corrections adapt to their particles: coordinates, jumps, and which particles to replace."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from nvgd._support.compilation import quickly_compiled
from nvgd._support.particle_groups import even_selection
from nvgd._support.random_bits import random_indices
from nvgd._support.robust import can_fit_scatter, median
from nvgd.exact.jumps import Jumps, fit_jumps
from nvgd.exact.low_rank_frame import with_principal_directions
from nvgd.exact.scale_frame import with_scales
from nvgd.flow.coordinates.base import AbstractCoordinates, AbstractFrame
from nvgd.targets.scores import Scores

# Particles that have been rejected this many times in a row are stuck.
MOST_REJECTIONS = 60
# A log density may be this much lower than where the particle's distance would explain it.
LARGEST_GAP = 15.0
# With too few particles to estimate correlations, a distance explains less of the log density, by
# this many of its standard deviations for a normal target.
UNEXPLAINED = 5.0
# Searches of the coordinates before a new round of corrections.
NUM_SEARCHES = 10
# Coordinates are fitted to this many rows per dimension, from at most so many states per chain.
ROWS_PER_DIMENSION, MOST_SNAPSHOTS = 8, 5
# With fewer particles per dimension, scores improve the coordinates (`low_rank_frame`).
FEWEST_PER_DIMENSION = 2
# Streams of a step's key.
STRAY_STREAM, JUMP_STREAM = 1, 2


class Snapshots(NamedTuple):
    """Earlier states of the chains: more rows for the fit of coordinates in many dimensions."""

    particles: Float[Array, "n k d"]
    """The latest first."""
    scores: Float[Array, "n k d"]

    @classmethod
    def of(cls, particles: Float[Array, "n d"], scores: Float[Array, "n d"]) -> "Snapshots | None":
        """Copies of the current states; None if these are enough."""
        num, dim = particles.shape
        number = min(-(-ROWS_PER_DIMENSION * dim // num), MOST_SNAPSHOTS) - 1
        if number < 1:
            return None
        return cls(*(jnp.repeat(each[:, None], number, axis=1) for each in (particles, scores)))

    def followed_by(
        self, particles: Float[Array, "n d"], scores: Float[Array, "n d"]
    ) -> "Snapshots":
        """With the current states in place of the oldest ones."""
        return Snapshots(
            jnp.concatenate([particles[:, None], self.particles[:, :-1]], axis=1),
            jnp.concatenate([scores[:, None], self.scores[:, :-1]], axis=1),
        )


class Adapted(NamedTuple):
    """Result of an adaptation."""

    frame: AbstractFrame
    jumps: Jumps
    source: Int[Array, " n"]
    """For each particle, the index of the one that it becomes a copy of; most keep their own."""


def adapt(
    coordinates: AbstractCoordinates,
    memory: PyTree,
    particles: Float[Array, "n d"],
    found: Scores,
    num_rejections: Int[Array, " n"],
    past: Snapshots | None,
    step: Int[Array, ""],
    key: PRNGKeyArray,
) -> Adapted:
    """Fit coordinates and jumps to the particles, and find strays.

    Stray, stuck and zero-density particles are replaced by copies of random healthy ones, and do
    not count in the fit of the jumps.

    Arguments:
        memory: the state of the coordinates.
        found: finite log densities and scores of the particles.
        num_rejections: number of consecutive rejections of each particle.
        past: earlier states, to which the coordinates are fitted, too.
        step: number of steps taken.
        key: random key of the run.
    """
    key = jax.random.fold_in(key, step)
    rows, row_scores = particles, found.scores
    if past is not None:
        dim = particles.shape[1]
        rows, row_scores = (
            jnp.concatenate([now, before.reshape(-1, dim)])
            for now, before in ((rows, past.particles), (row_scores, past.scores))
        )
    frame = coordinates.settled(rows, row_scores, memory)
    if can_fit_scatter(*particles.shape):
        frame = with_scales(frame, even_selection(rows), even_selection(row_scores))
    if len(particles) < FEWEST_PER_DIMENSION * particles.shape[1]:
        frame = with_principal_directions(frame, rows, row_scores)
    expressed, _ = frame.express(particles, found.scores)
    log_densities = found.log_densities + frame.log_volumes(expressed)
    is_healthy = ~is_stray(expressed, log_densities) & (num_rejections < MOST_REJECTIONS)
    num_particles = len(expressed)
    # A few tries find a healthy particle, unless almost none is healthy.
    others = random_indices(key, (8, num_particles), num_particles, STRAY_STREAM)
    own = jnp.arange(num_particles)
    source = own
    for chosen in others:
        source = jnp.where(is_healthy[source], source, chosen)
    source = jnp.where(is_healthy[source], source, own)
    return Adapted(frame, fit_jumps(expressed[source], key, JUMP_STREAM), source)


@quickly_compiled
def searched(
    coordinates: AbstractCoordinates,
    particles: Float[Array, "n d"],
    scores: Float[Array, "n d"],
    memory: PyTree,
) -> PyTree:
    """The state of the coordinates after `NUM_SEARCHES` searches, for a driver for example."""

    def search(_: Array | int, memory: PyTree) -> PyTree:
        return coordinates.search(particles, scores, memory)

    return jax.lax.fori_loop(0, NUM_SEARCHES, search, memory)


def is_stray(
    positions: Float[Array, "n d"], log_densities: Float[Array, " n"]
) -> Bool[Array, " n"]:
    """Particles whose log density is far too low for their distance from the others.

    The mass at distance r is about p·rᵈ. A particle is a stray if this is smaller, by a factor of
    n·exp(LARGEST_GAP), than for a typical particle: not one of n draws would be there.

    Arguments:
        positions: the particles, in coordinates in which they have about unit spread.
        log_densities: log density of each, in the same coordinates.
    """
    num_particles, dim = positions.shape
    distances = jnp.linalg.norm(positions, axis=1) + 1e-30
    typical, distance = median(jnp.stack([log_densities, distances], axis=1))
    gap = typical - log_densities
    explained = dim * jnp.maximum(jnp.log(distances / distance), 0.0)
    if not can_fit_scatter(num_particles, dim):
        explained += UNEXPLAINED * (dim / 2) ** 0.5
    return ~(gap < explained + LARGEST_GAP + jnp.log(num_particles))
