"""Modes that the particles of a noisy flow have missed: climbs from where the particles started.

In its first steps, a flow moves all particles together, and may carry those of one mode over to
another. Here, climbs are independent of each other: steps of Adam's on batches, then, for those
that end far from the particles, L-BFGS on all rows.
"""

from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from nvgd._support.compilation import quickly_compiled
from nvgd.targets.climbs import climb, has_barrier, points_between
from nvgd.targets.data import AbstractBatches
from nvgd.targets.density_checks import evenly_spaced
from nvgd.targets.evaluation import evaluate
from nvgd.targets.row_passes import Place, log_densities, place_of
from nvgd.targets.target import Target

NUM_CLIMBS = 16
# Steps of a climb on batches, and their size, which falls to FINAL_SHARE of it.
NUM_STEPS, STEP_SIZE, FINAL_SHARE = 300, 0.1, 0.01
OPTIMISER = optax.adam(
    optax.exponential_decay(STEP_SIZE, NUM_STEPS, FINAL_SHARE), b1=0.9, b2=0.99, eps=1e-30
)
# Ends that are polished on all rows, and iterations of each.
MOST_POLISHED, MOST_ITERATIONS = 3, 30
# Particles put into another mode have this share of the spread of the others: it may be narrower.
SPREAD = 0.5


class OtherModes(NamedTuple):
    """Modes as high as those where the particles are."""

    positions: Float[np.ndarray, "k d"]
    shares: Float[np.ndarray, " k"]
    """Share of the climbs that ended there."""

    def joined(self, particles: Float[Array, "n d"]) -> Float[np.ndarray, "n d"]:
        """The particles, of which some are moved to these modes, in proportion to the shares."""
        found = np.array(particles)
        centre = np.asarray(place_of(particles).anchor)
        bounds = np.concatenate([[0.0], np.cumsum(self.shares)])
        # Evenly spaced numbers in an order without a period that groups of particles may have.
        levels = (np.arange(len(found)) * 0.6180339887) % 1.0
        for position, low, high in zip(self.positions, bounds[:-1], bounds[1:], strict=True):
            moved = (levels >= low) & (levels < high)
            found[moved] = position + SPREAD * (found[moved] - centre)
        return found


def other_modes(
    target: Target, starts: Float[np.ndarray, "k d"], particles: Float[Array, "n d"], seed: int
) -> OtherModes | None:
    """The modes that climbs from the starts find and where no particle is; None without any.

    Takes a few hundred batches, and passes over all rows only if climbs end elsewhere.
    """
    batches = target.batches(seed)
    assert batches is not None
    ends = _climbed(target, starts[:NUM_CLIMBS], batches)
    place = place_of(particles)
    reach = 2 * np.linalg.norm(place.expressed(particles), axis=1).max()
    is_far = np.linalg.norm(place.expressed(ends), axis=1) > reach
    left = ends[is_far & np.all(np.isfinite(ends), axis=1)]
    modes: list[np.ndarray] = []
    counts: list[int] = []
    while len(left) and len(modes) < MOST_POLISHED:
        mode = _polished(target, place, left[0])
        # Climbs on batches end near their mode, not in it.
        gaps = np.linalg.norm(place.expressed(left) - place.expressed(mode[None]), axis=1)
        is_here = gaps < reach
        is_here[0] = True
        modes.append(mode)
        counts.append(int(is_here.sum()))
        left = left[~is_here]
    if not modes:
        return None
    ends, centre = np.stack(modes), np.asarray(place.anchor)
    between = points_between(ends, centre).reshape(-1, len(centre))
    some = np.asarray(particles[evenly_spaced(len(particles))])
    positions = np.concatenate([ends, centre[None], between, some])
    values = log_densities(target, jnp.asarray(positions, particles.dtype))
    peaks, at_centre, between, here = np.split(
        values, np.cumsum([len(ends), 1, len(between)]).tolist()
    )
    # With few particles per dimension, distances alone would indicate modes that do not exist.
    is_apart = has_barrier(between.reshape(-1, len(ends)), peaks, float(at_centre[0]))
    is_mode = (peaks > np.median(here)) & is_apart
    if not is_mode.any():
        return None
    return OtherModes(ends[is_mode], np.array(counts)[is_mode] / NUM_CLIMBS)


def _climbed(
    target: Target, starts: Float[np.ndarray, "n d"], batches: AbstractBatches
) -> Float[np.ndarray, "n d"]:
    """Ends of climbs on batches, by Adam, one climb per start."""
    at = jnp.asarray(starts)
    state = OPTIMISER.init(at)
    for step in range(NUM_STEPS):
        batch = target.batch(jax.tree.map(lambda leaf: leaf[0], batches.take(step, 1)))
        at, state = _moved(at, state, evaluate(target, at, batch).scores)
    return np.asarray(at)


@quickly_compiled
def _moved(at: Array, state: PyTree, scores: Array) -> tuple[Array, PyTree]:
    scores = jnp.nan_to_num(scores, posinf=0.0, neginf=0.0)
    changes, state = OPTIMISER.update(-scores, state)
    return cast(Array, optax.apply_updates(at, changes)), state


def _polished(
    target: Target, place: Place, start: Float[np.ndarray, " d"]
) -> Float[np.ndarray, " d"]:
    """End of a climb on all rows, in units of the particles' scatter."""
    root = np.asarray(place.root, np.float64)

    def objective(u: Array) -> tuple[Array, Array]:
        value, score = target.on_all_data_at(
            jnp.asarray(start + root @ np.asarray(u, np.float64), start.dtype)
        )
        # A climb does not go where scores overflow.
        with np.errstate(invalid="ignore", over="ignore"):
            return value, jnp.asarray(np.asarray(score, np.float64) @ root, start.dtype)

    if not np.isfinite(objective(jnp.zeros(len(start), start.dtype))[0]):
        return start
    path = climb(objective, jnp.zeros(len(start), start.dtype), MOST_ITERATIONS)
    return (start + root @ path.end).astype(start.dtype)
