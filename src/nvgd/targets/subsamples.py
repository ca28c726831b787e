"""The log density of all rows, from a weighted subsample that is corrected at an anchor.

With θ̂ a position among the particles (the anchor), ℓᵢ the log likelihood of row i, and S a random
subsample of the rows with weights wᵢ,

    log p(θ) ≈ log prior(θ) + Σ_S wᵢ(ℓᵢ(θ) − ℓᵢ(θ̂)) + b·u + ½uᵀCu,   θ = θ̂ + Lu

where b and C make gradient and Hessian of the likelihood at θ̂ those of all rows, and LLᵀ is the
scatter of the particles. The subsample has to represent only what is left, the rows' remainders of
third order. They are small for most rows and large for a few: those of small groups, rare events,
outliers. One pass over all data measures their spread over the particles, and rows are drawn in
proportion to it. A few hundred rows can then stand for a hundred thousand. Since S is fixed, the
log density has no noise, so that Metropolis steps can use it. Its error is measured.

Quadratic control variates for subsampled likelihoods are those of Bardenet, Doucet and Holmes
("On Markov chain Monte Carlo methods for tall data", 2017). S is a priority sample (Duffield, Lund
and Thorup, "Priority sampling for estimation of arbitrary subset sums", 2007), which takes one pass
and does not depend on the order of the rows.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from nvgd.targets.curvature import MAX_DENSE_DIMENSION
from nvgd.targets.data import count_rows
from nvgd.targets.positions import Position
from nvgd.targets.row_passes import (
    ROWS_PER_BLOCK,
    Derivatives,
    Place,
    all_blocks,
    check_order,
    check_rows,
    derivatives,
    log_densities,
    look,
    padded,
    place_of,
    row_values,
)
from nvgd.targets.target import Target

# Probes at which remainders are measured: particles, within FARTHEST·√d standard deviations of the
# anchor, and positions twice as far away.
NUM_PROBES = 32
FARTHEST = 2.0
# Probes along which the order of a stream is checked.
NUM_COMPARED = 4
# Of the probes, so many that were left in a probable place tell of another mode.
FEWEST_LEFT = 2
# Chains stay within √d + MARGIN standard deviations of the anchor.
MARGIN = 8.0
# If more of the particles are farther away, in other modes, all rows are used, if these are few
# enough.
MOST_OUTSIDE = 0.02
MOST_ROWS_AT_ONCE = 2**16
# Every row counts at least as if its remainder had this share of the mean size.
LEAST_SHARE = 0.1
# The subsample grows from one batch to MOST_BATCHES, or what a round allows, until its error is
# below TOLERANCE, and twice as far from the anchor, where chains should not be led astray, below
# TOLERANCE_FAR.
MOST_BATCHES = 16
TOLERANCE, TOLERANCE_FAR = 0.1, 1.0
# Remainders of a row count up to this size, in nats.
LARGEST_REMAINDER = 1e3
# With a larger error, chains would be far from the target.
LARGEST_ERROR = 2.0


class Row(NamedTuple):
    """A row of the subsample, or all of them."""

    row: PyTree
    weight: Any
    """JAX or NumPy; of all rows, shape (m,)."""
    at_anchor: Any
    """Log likelihood of the row at the anchor, of the same shape."""


class WeightedLikelihood(eqx.Module):
    """wᵢ(ℓᵢ(θ) − ℓᵢ(θ̂))."""

    log_likelihood: Any

    def __call__(self, position: Position, datum: Row) -> Array:
        """Value for one row, or for several if the likelihood is vectorised."""
        return datum.weight * (self.log_likelihood(position, datum.row) - datum.at_anchor)


class CorrectedPrior(eqx.Module):
    """log prior(θ) + b·u + ½uᵀCu − 2 max(0, |u| − R)².

    Far from the anchor, the expansion means nothing and may grow without bound. The last term keeps
    chains within R = √d + 8; particles that the posterior has scattered as LLᵀ lie far inside.
    """

    log_prior: Any
    anchor: Float[Array, " d"]
    inverse_root: Float[Array, "d d"]
    linear: Float[Array, " d"]
    quadratic: Float[Array, "d d"]

    def __call__(self, position: Position) -> Array:
        """Value at one position."""
        u = self.inverse_root @ (ravel_pytree(position)[0] - self.anchor)
        distance = jnp.sqrt(u @ u + 1e-12)
        outside = jnp.maximum(0.0, distance - len(u) ** 0.5 - MARGIN)
        expansion = u @ (self.linear + 0.5 * self.quadratic @ u)
        return self.log_prior(position) + expansion - 2 * outside**2


class Subsample(NamedTuple):
    """Rows that stand for all rows near an anchor, as arrays that a checkpoint can hold."""

    rows: Row
    anchor: Float[Array, " d"]
    inverse_root: Float[Array, "d d"]
    linear: Float[Array, " d"]
    quadratic: Float[Array, "d d"]
    error: Float[Array, ""]
    """Standard deviation of its error in log p over the particles that it was drawn for."""

    @property
    def is_usable(self) -> bool:
        """Whether chains over its log density would be near the target."""
        return float(self.error) < LARGEST_ERROR

    def target(self, whole: Target) -> Target:
        """The target without minibatches that stands for `whole`."""
        return whole.on_rows(
            CorrectedPrior(whole.log_prior, *self[1:-1]),
            WeightedLikelihood(whole.log_likelihood),
            self.rows,
        )

    @classmethod
    def restored(cls, whole: Target, arrays: Mapping[str, np.ndarray]) -> "Subsample":
        """A subsample from its leaves, in the order of their numbers."""
        assert whole.data is not None
        like = cls(Row(whole.data.example, 0, 0), 0, 0, 0, 0, 0)  # pyright: ignore[reportArgumentType]
        leaves = [jnp.asarray(arrays[str(i)]) for i in range(len(arrays))]
        return jax.tree.unflatten(jax.tree.structure(like), leaves)


def can_subsample(target: Target) -> bool:
    """Whether a subsample can stand for all rows of a target with minibatches.

    All rows must be readable more than once, and the parameters few enough for a Hessian.
    """
    has_rows = target.is_noisy and target.log_likelihood is not None
    return has_rows and target.can_use_all_data and target.dim <= MAX_DENSE_DIMENSION


def density_error(
    target: Target, particles: Float[Array, "n d"], approximate: Float[Array, " n"]
) -> float:
    """Standard deviation over particles of an error in their log densities, in nats.

    Takes one pass over all rows.

    Arguments:
        approximate: the log densities to be judged.
    """
    chosen = _evenly(len(particles))
    exact = log_densities(target, jnp.asarray(particles)[chosen])
    return float(np.std(np.asarray(approximate, np.float64)[chosen] - exact))


def leaves_behind(target: Target, before: Float[Array, "n d"], after: Float[Array, "n d"]) -> bool:
    """Whether particles have moved away from places that are as probable as where they went.

    A subsample with one anchor does not represent several distant modes: chains on it would all
    gather in one of them. Takes one pass over all rows.

    Arguments:
        before, after: particles before and after they moved.
    """
    place, num = place_of(after), 2 * NUM_PROBES
    old = jnp.asarray(before)[_evenly(len(before), num)]
    positions = jnp.concatenate([old, jnp.asarray(after)[_evenly(len(after))]])
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


def _evenly(num_particles: int, number: int = NUM_PROBES) -> np.ndarray:
    """Rows of so many particles, evenly spaced; of all, if there are fewer."""
    number = min(number, num_particles)
    return np.linspace(0, num_particles - 1, number).round().astype(int)


def subsample(
    target: Target,
    particles: Float[Array, "n d"],
    seed: int,
    most_batches: int = MOST_BATCHES,
    *,
    fewest_batches: int = 1,
    or_all: bool = False,
) -> Subsample:
    """The rows that stand for all rows near these particles.

    Takes one pass over all rows: one Hessian, and values at 32 positions.

    Arguments:
        target: a target for which `can_subsample` holds.
        particles: the anchor is in their centre.
        seed: seed of the subsample, and of the choice of probes.
        most_batches, fewest_batches: the largest and the smallest subsample, in batches.
        or_all: take all rows, if these are few enough, rather than a subsample of no use.
    """
    rng = np.random.default_rng(seed)
    place = place_of(particles)
    distances = np.linalg.norm(place.expressed(particles), axis=1)
    is_outside = distances > len(place.anchor) ** 0.5 + MARGIN
    if is_outside.mean() > MOST_OUTSIDE and target.num_rows <= MOST_ROWS_AT_ONCE:
        return _all_rows(target, place)
    found = place.expressed(particles[rng.permutation(len(particles))[: NUM_PROBES // 2]])
    distances = np.linalg.norm(found, axis=1, keepdims=True) / np.sqrt(found.shape[1])
    near = found / np.maximum(distances / FARTHEST, 1.0)
    probes = jnp.asarray(np.concatenate([near, 2 * near]), particles.dtype)
    candidates = _Candidates(most_batches * (target.batch_size or 1), rng)
    total, remainders, num_seen = Derivatives.none(target.dim), np.zeros(len(probes)), 0
    slopes: list[np.ndarray] = []
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
        candidates.add(block, at_anchor, left)
        num_seen += num
        slopes.append(np.asarray(seen.slopes, np.float64)[:NUM_COMPARED, :num].T)
    assert target.data is not None
    if target.data.own_batch_size is not None:
        check_order(np.concatenate(slopes), target.data.own_batch_size)
    # A stream may leave out the rows of an incomplete last batch.
    scale = target.num_rows / num_seen
    smallest = fewest_batches * (target.batch_size or 1)
    rows, error = candidates.chosen(remainders, smallest, num_seen)
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


class _Candidates:
    """The rows of highest priority so far; a priority is a remainder's size over a uniform number.

    Arguments:
        most: number of rows to keep.
    """

    def __init__(self, most: int, rng: np.random.Generator):
        self._most, self._rng = most, rng
        self._floor: float | None = None
        self._kept: Any = None

    def add(
        self,
        rows: PyTree,
        at_anchor: Float[np.ndarray, " m"],
        remainders: Float[np.ndarray, "k m"],
    ) -> None:
        """Add a block of rows with their remainders at the probes."""
        sizes = remainders.reshape(2, -1, remainders.shape[1]).std(axis=1).max(axis=0)
        if self._floor is None:
            self._floor = LEAST_SHARE * float(sizes.mean()) + 1e-30
        sizes = sizes + self._floor
        priorities = sizes / (1 - self._rng.random(len(sizes)))
        new = (jax.tree.map(np.asarray, rows), at_anchor, remainders.T, sizes, priorities)
        joined = new
        if self._kept is not None:
            joined = jax.tree.map(lambda *parts: np.concatenate(parts), self._kept, new)
        # One more than needed: its priority is the threshold.
        best = np.argsort(-joined[-1], kind="stable")[: self._most + 1]
        self._kept = jax.tree.map(lambda leaf: leaf[best], joined)

    def chosen(
        self, remainders: Float[np.ndarray, " k"], smallest: int, num_seen: int
    ) -> tuple[Row, float]:
        """The smallest subsample whose error is below `TOLERANCE`, or the largest; and its error.

        Arguments:
            remainders: sums over all rows, at the probes.
            smallest: fewest rows to take.
            num_seen: number of rows that were added.
        """
        rows, at_anchor, own, sizes, priorities = self._kept
        has_all = len(sizes) == num_seen
        size = smallest
        while True:
            size = min(size, len(sizes) if has_all else len(sizes) - 1)
            threshold = priorities[size] if size < len(sizes) else 0.0
            weights = np.maximum(1.0, threshold / sizes[:size])
            errors = (weights @ own[:size] - remainders).reshape(2, -1).std(axis=1)
            error = float(errors[0])
            is_good = error < TOLERANCE and errors[1] < TOLERANCE_FAR
            if is_good or size >= len(sizes) - (not has_all):
                rows = jax.tree.map(lambda leaf, size=size: leaf[:size], rows)
                return Row(rows, weights, at_anchor[:size]), error
            size *= 2


def _derivatives_of(target: Target, place: Place, rows: Row) -> Derivatives:
    """Derivatives of the weighted sum of the subsample."""
    total = Derivatives.none(target.dim)
    for first in range(0, len(rows.weight), ROWS_PER_BLOCK):
        part = slice(first, first + ROWS_PER_BLOCK)
        block = jax.tree.map(lambda leaf, part=part: leaf[part], rows.row)
        total = total.plus(derivatives(target, place, *padded(block, rows.weight[part])))
    return total
