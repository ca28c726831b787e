"""The rows that stand for all rows near the particles: one pass over all rows.

The subsample is corrected at its anchor (`corrected_rows`), so that it has to represent only what
is left, the rows' remainders of third order. They are small for most rows and large for a few:
those of small groups, rare events, outliers. One pass over all data measures their spread over the
particles, and rows are drawn in proportion to it (`priority_sampling`). A few hundred rows can then
stand for a hundred thousand. Since the subsample is fixed, the log density has no noise, so that
Metropolis steps can use it. Its error is measured.

Quadratic control variates for subsampled likelihoods are those of Bardenet, Doucet and Holmes
("On Markov chain Monte Carlo methods for tall data", 2017).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nvgd.targets.corrected_rows import LARGEST_ERROR, MARGIN, Row, Subsample
from nvgd.targets.curvature import MAX_DENSE_DIMENSION
from nvgd.targets.data import count_rows
from nvgd.targets.priority_sampling import Candidates
from nvgd.targets.row_checks import check_dependence, check_number, check_rows
from nvgd.targets.row_passes import (
    ROWS_PER_BLOCK,
    Derivatives,
    Place,
    all_blocks,
    derivatives,
    look,
    padded,
    place_of,
    prior_hessian,
    row_values,
)
from nvgd.targets.target import Target

# Probes are the positions at which remainders are measured: so many particles, within FARTHEST·√d
# standard deviations of the anchor, and positions twice as far away. One half of the particles
# decides which rows are taken, the other half judges the choice.
NUM_PROBES = 32
FARTHEST = 2.0
# If more of the particles are outside, in other modes, all rows are used, if these are few enough.
MOST_OUTSIDE = 0.02
MOST_ROWS_AT_ONCE = 2**16
# The largest subsample of a first round, in batches.
MOST_BATCHES = 16
# The largest factor by which the scatter of cramped particles is widened.
MOST_WIDENED = 10.0
# Remainders of a row count up to this size, in nats.
LARGEST_REMAINDER = 1e3


def can_subsample(target: Target) -> bool:
    """Whether a subsample can stand for all rows of a target with minibatches.

    All rows must be readable more than once, and the parameters few enough for a Hessian.
    """
    has_rows = target.is_noisy and target.log_likelihood is not None
    return has_rows and target.can_use_all_data and target.dim <= MAX_DENSE_DIMENSION


def subsample(
    target: Target,
    particles: Float[Array, "n d"],
    seed: int,
    most_batches: int = MOST_BATCHES,
    *,
    fewest_batches: int = 1,
    or_all: bool = False,
    is_cramped: bool = False,
) -> Subsample:
    """The rows that stand for all rows near these particles.

    Takes one pass over all rows: one Hessian, and values at 64 positions. If the particles are
    cramped, another pass comes before it.

    Arguments:
        target: a target for which `can_subsample` holds.
        particles: the anchor is in their centre.
        seed: seed of the subsample, and of the choice of probes.
        most_batches, fewest_batches: the largest and the smallest subsample, in batches.
        or_all: take all rows, if these are few enough, rather than a subsample of no use.
        is_cramped: the particles have pressed against the margin of an earlier subsample. Their
            scatter is then too narrow, and is widened to that of a normal distribution with the
            curvature at the anchor.
    """
    rng = np.random.default_rng(seed)
    place = place_of(particles)
    distances = np.linalg.norm(place.expressed(particles), axis=1)
    is_outside = distances > len(place.anchor) ** 0.5 + MARGIN
    if is_outside.mean() > MOST_OUTSIDE and target.num_rows <= MOST_ROWS_AT_ONCE:
        return _all_rows(target, place)
    probes = jnp.asarray(_probes(place, particles, rng), particles.dtype)
    if is_cramped:
        place = _widened(target, place)
    candidates = Candidates(most_batches * (target.batch_size or 1), rng)
    total, remainders, num_seen = Derivatives.none(target.dim), np.zeros(len(probes)), 0
    half = len(probes) // 2
    for block in all_blocks(target):
        num = count_rows(block)
        seen = look(target, place, probes, *padded(block, np.ones(num)))
        at_anchor = np.asarray(seen.at_anchor)[:num]
        check_rows(at_anchor, num_seen)
        # Where a row's likelihood overflows, chains will not go.
        left = np.nan_to_num(
            np.asarray(seen.remainders, np.float64)[:, :num], nan=LARGEST_REMAINDER
        )
        left = np.clip(left, -LARGEST_REMAINDER, LARGEST_REMAINDER)
        total, remainders = total.plus(seen.derivatives), remainders + left.sum(axis=1)
        candidates.add(block, at_anchor, left[:half], left[half:])
        if not num_seen:
            check_dependence(np.asarray(seen.slopes, np.float64)[:, :num].T, block)
        num_seen += num
    assert target.data is not None
    if target.data.own_batch_size is not None:
        check_number(num_seen, target.num_rows, target.data.own_batch_size)
    # A stream may leave out the rows of an incomplete last batch.
    scale = target.num_rows / num_seen
    smallest = fewest_batches * (target.batch_size or 1)
    rows, error = candidates.chosen(remainders[:half], remainders[half:], smallest, num_seen)
    if or_all and scale * error >= LARGEST_ERROR and target.num_rows <= MOST_ROWS_AT_ONCE:
        return _all_rows(target, place)
    own = _derivatives_of(target, place, rows)
    dtype = particles.dtype
    return Subsample(
        Row(
            jax.tree.map(jnp.asarray, rows.row),
            jnp.asarray(scale * rows.weight, dtype),
            jnp.asarray(rows.at_anchor, dtype),
        ),
        place.anchor,
        jnp.asarray(np.linalg.inv(np.asarray(place.root, np.float64)), dtype),
        jnp.asarray(scale * (total.gradient - own.gradient), dtype),
        jnp.asarray(scale * (total.hessian - own.hessian), dtype),
        jnp.asarray(scale * error, dtype),
    )


def _widened(target: Target, place: Place) -> Place:
    """The place with a wider scatter where the log density is less curved than it suggests."""
    hessian = np.asarray(prior_hessian(target, place), np.float64)
    for block in all_blocks(target):
        found = derivatives(target, place, *padded(block, np.ones(count_rows(block))))
        hessian = hessian + np.asarray(found.hessian)
    if not np.isfinite(hessian).all():
        return place
    curvatures, axes = np.linalg.eigh((hessian + hessian.T) / 2)
    factors = np.clip(np.abs(curvatures) ** -0.5, 1.0, MOST_WIDENED)
    root = np.asarray(place.root, np.float64) @ (axes * factors) @ axes.T
    return place._replace(root=jnp.asarray(root, place.root.dtype))


def _probes(
    place: Place, particles: Float[Array, "n d"], rng: np.random.Generator
) -> Float[np.ndarray, "k d"]:
    """Probes u: those that decide, near and far, then those that judge, near and far."""
    found = place.expressed(particles[rng.permutation(len(particles))[:NUM_PROBES]])
    distances = np.linalg.norm(found, axis=1, keepdims=True) / np.sqrt(found.shape[1])
    near = found / np.maximum(distances / FARTHEST, 1.0)
    number = -(-len(near) // 2)
    deciding, judging = near[:number], near[-number:]
    return np.concatenate([deciding, 2 * deciding, judging, 2 * judging])


def _all_rows(target: Target, place: Place) -> Subsample:
    """All rows, which stand for themselves anywhere: no expansion, and no limit for chains."""
    dim, dtype = target.dim, place.anchor.dtype
    blocks = list(all_blocks(target))
    rows = jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)
    at_anchor = np.concatenate(
        [
            np.asarray(row_values(target, place.anchor, padded(block, np.ones(num))[0]))[:num]
            for block in blocks
            for num in (count_rows(block),)
        ]
    )
    check_rows(at_anchor, 0)
    weights = np.full(len(at_anchor), target.num_rows / len(at_anchor))
    nothing = jnp.zeros((dim, dim), dtype)
    return Subsample(
        Row(jax.tree.map(jnp.asarray, rows), jnp.asarray(weights, dtype), jnp.asarray(at_anchor)),
        place.anchor,
        nothing,
        jnp.zeros(dim, dtype),
        nothing,
        jnp.zeros((), dtype),
    )


def _derivatives_of(target: Target, place: Place, rows: Row) -> Derivatives:
    """Derivatives of the weighted sum of the subsample."""
    total = Derivatives.none(target.dim)
    for first in range(0, len(rows.weight), ROWS_PER_BLOCK):
        part = slice(first, first + ROWS_PER_BLOCK)
        block = jax.tree.map(lambda leaf, part=part: leaf[part], rows.row)
        total = total.plus(derivatives(target, place, *padded(block, rows.weight[part])))
    return total
