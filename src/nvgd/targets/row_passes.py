"""Passes over all rows of a likelihood, block by block: derivatives and remainders at an anchor.

Positions are expressed as θ = θ̂ + Lu, with θ̂ the anchor and LLᵀ the scatter of the particles, so
that u is of order one whatever the units of the parameters. Sums over blocks are taken on the
host, in double precision.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from nvgd._support.compilation import compiled, quickly_compiled
from nvgd._support.robust import can_fit_scatter, coordinate_scales, student_scatter
from nvgd.targets.data import count_rows
from nvgd.targets.target import Target

# Rows per block of a pass.
ROWS_PER_BLOCK = 1024
# Rows of a Hessian that are computed together.
AXES_AT_ONCE = 32
# Fixed-point iterations of the scatter.
NUM_ITERATIONS = 20


class Place(NamedTuple):
    """The anchor θ̂, and L: θ = θ̂ + Lu."""

    anchor: Float[Array, " d"]
    root: Float[Array, "d d"]

    def expressed(
        self, positions: Float[Array, "k d"] | Float[np.ndarray, "k d"]
    ) -> Float[np.ndarray, "k d"]:
        """u of these positions, in double precision."""
        offsets = np.asarray(positions, np.float64) - np.asarray(self.anchor, np.float64)
        return np.linalg.solve(np.asarray(self.root, np.float64), offsets.T).T


class Derivatives(NamedTuple):
    """Gradient and Hessian with respect to u, at the anchor, of a weighted sum of rows."""

    gradient: Any
    """Shape (d,); JAX or NumPy."""
    hessian: Any
    """Shape (d, d)."""

    @classmethod
    def none(cls, dim: int) -> "Derivatives":
        """Those of no rows."""
        return cls(np.zeros(dim), np.zeros((dim, dim)))

    def plus(self, other: "Derivatives") -> "Derivatives":
        """Those of both sums, in double precision."""
        return Derivatives(*(mine + np.asarray(its) for mine, its in zip(self, other, strict=True)))


class Look(NamedTuple):
    """What a pass sees of a block of rows."""

    derivatives: Derivatives
    at_anchor: Float[Array, " rows"]
    """Log likelihood of every row at the anchor."""
    slopes: Float[Array, "k rows"]
    """Derivative of every row's log likelihood towards each probe."""
    remainders: Float[Array, "k rows"]
    """For every row and probe, the remainder of a quadratic expansion at the anchor."""


@quickly_compiled
def place_of(particles: Float[Array, "n d"]) -> Place:
    """The anchor in the particles' centre, with their scatter."""
    if can_fit_scatter(*particles.shape):
        return Place(*student_scatter(particles, NUM_ITERATIONS))
    centre, scales = coordinate_scales(particles)
    return Place(centre, jnp.diag(scales))


def all_blocks(target: Target) -> Iterator[PyTree]:
    """All rows once, in blocks of about `ROWS_PER_BLOCK`; small batches of a stream are joined."""
    waiting: list[PyTree] = []
    for block in target.blocks():
        waiting.append(jax.tree.map(np.asarray, block))
        if sum(map(count_rows, waiting)) >= ROWS_PER_BLOCK:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(blocks: list[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)


def padded(rows: PyTree, weights: Float[np.ndarray, " m"]) -> tuple[PyTree, Float[Array, " rows"]]:
    """Rows and weights, up to a multiple of the block size: one program serves all blocks.

    Rows that are added have weight zero.
    """
    num = len(weights)
    size = -(-num // ROWS_PER_BLOCK) * ROWS_PER_BLOCK
    places = np.minimum(np.arange(size), num - 1)
    full = np.concatenate([weights, np.zeros(size - num)]).astype(np.float32)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[places], rows), jnp.asarray(full)


def _terms(target: Target, place: Place, rows: PyTree, u: Float[Array, " d"]) -> Array:
    """Log likelihood of every row at θ̂ + Lu."""
    return target.log_likelihoods(place.anchor + place.root @ u, rows)


@compiled
def derivatives(
    target: Target, place: Place, rows: PyTree, weights: Float[Array, " rows"]
) -> Derivatives:
    """Derivatives of the weighted sum of these rows."""

    def gradient(u: Array) -> Array:
        return jax.grad(lambda u: weights @ _terms(target, place, rows, u))(u)

    origin = jnp.zeros_like(place.anchor)
    axes = jnp.eye(len(origin), dtype=origin.dtype)
    hessian = jax.lax.map(
        lambda axis: jax.jvp(gradient, (origin,), (axis,))[1], axes, batch_size=AXES_AT_ONCE
    )
    return Derivatives(gradient(origin), hessian)


@compiled
def prior_hessian(target: Target, place: Place) -> Float[Array, "d d"]:
    """Hessian of the log prior with respect to u, at the anchor."""

    def log_prior(u: Array) -> Array:
        return jnp.asarray(target.log_prior(target.structure(place.anchor + place.root @ u)))

    return jax.hessian(log_prior)(jnp.zeros_like(place.anchor))


@compiled
def look(
    target: Target,
    place: Place,
    probes: Float[Array, "k d"],
    rows: PyTree,
    weights: Float[Array, " rows"],
) -> Look:
    """Derivatives of the sum of these rows, and their remainders at the probes u."""
    zero, one = jnp.zeros((), probes.dtype), jnp.ones((), probes.dtype)
    at_anchor = _terms(target, place, rows, jnp.zeros_like(place.anchor))

    def towards(probe: Array) -> tuple[Array, Array]:
        def along(t: Array) -> Array:
            return _terms(target, place, rows, t * probe)

        def slope(t: Array) -> tuple[Array, Array]:
            return jax.jvp(along, (t,), (one,))

        (_, first), (_, second) = jax.jvp(slope, (zero,), (one,))
        return first, along(one) - at_anchor - first - 0.5 * second

    return Look(derivatives(target, place, rows, weights), at_anchor, *jax.vmap(towards)(probes))


def log_densities(target: Target, positions: Float[Array, "k d"]) -> Float[np.ndarray, " k"]:
    """Log densities of all rows, less that of the first position.

    The difference is taken row by row: in single precision, rounding of a sum over many rows would
    hide it.
    """
    total, num_seen = np.zeros(len(positions)), 0
    for block in all_blocks(target):
        num = count_rows(block)
        found = _differences(target, positions, *padded(block, np.ones(num)))
        total += np.asarray(found, np.float64)
        num_seen += num
    prior = np.asarray(_priors(target, positions), np.float64)
    return total * target.num_rows / num_seen + prior - prior[0]


@compiled
def row_values(target: Target, position: Float[Array, " d"], rows: PyTree) -> Float[Array, " rows"]:
    """Log likelihood of every row at one position."""
    return target.log_likelihoods(position, rows)


def faulty_row(target: Target, position: Float[Array, " d"]) -> int | None:
    """Index of the first row whose log likelihood is not finite at a position.

    None if there is no such row, if the target does not use minibatches, or if its rows cannot be
    read again.
    """
    if not target.is_noisy or not target.can_use_all_data:
        return None
    num_seen = 0
    for block in all_blocks(target):
        num = count_rows(block)
        values = np.asarray(row_values(target, position, padded(block, np.ones(num))[0]))[:num]
        if not np.isfinite(values).all():
            return num_seen + int(np.argmin(np.isfinite(values)))
        num_seen += num
    return None


@compiled
def _differences(
    target: Target, positions: Float[Array, "k d"], rows: PyTree, weights: Float[Array, " rows"]
) -> Float[Array, " k"]:
    first = target.log_likelihoods(positions[0], rows)
    return jax.vmap(lambda x: weights @ (target.log_likelihoods(x, rows) - first))(positions)


@compiled
def _priors(target: Target, positions: Float[Array, "k d"]) -> Float[Array, " k"]:
    return jax.vmap(lambda x: jnp.asarray(target.log_prior(target.structure(x))))(positions)
