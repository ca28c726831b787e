"""Means over all pairs of particles, visited in blocks: memory grows with n, not n²."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree
from numpy.typing import ArrayLike

from nvgd._support.errors import InputError

# Rows and columns of a block of pairs: 4 MB of 32-bit floats.
BLOCK = 1024
# With more coordinates, the differences of all pairs do not fit the cache.
COORDINATES_AT_A_TIME = 128


def paired_samples(x: ArrayLike, y: ArrayLike, *, minimum: int) -> tuple[Array, Array]:
    """Check two samples and return them as arrays (n, d) and (m, d) of one floating-point type."""
    first, second = jnp.asarray(x), jnp.asarray(y)
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
        raise InputError(
            f"both samples must be arrays of shape (n, d) with the same d, got {first.shape} and "
            f"{second.shape}."
        )
    if min(len(first), len(second)) < minimum:
        raise InputError(
            f"both samples need at least {minimum} rows here, got {len(first)} and {len(second)}."
        )
    dtype = jnp.promote_types(first.dtype, second.dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.result_type(float)
    return first.astype(dtype), second.astype(dtype)


def squared_distances(x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """|xᵢ − yⱼ|², computed from differences to avoid cancellation between near particles."""

    def add(total: Array, parts: tuple[Array, Array]) -> tuple[Array, None]:
        ours, theirs = parts
        return total + jnp.sum((ours[:, None] - theirs[None]) ** 2, axis=-1), None

    start = jnp.zeros((len(x), len(y)), jnp.result_type(x, y))
    if x.shape[1] <= COORDINATES_AT_A_TIME:
        return add(start, (x, y))[0]
    return jax.lax.scan(add, start, (_coordinate_blocks(x), _coordinate_blocks(y)))[0]


def distances(x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """|xᵢ − yⱼ|."""
    return jnp.sqrt(squared_distances(x, y))


def pair_mean(
    function: Callable[[PyTree, PyTree], Array], x: PyTree, y: PyTree, *, distinct: bool = False
) -> Float[Array, ""]:
    """Mean of `function` over all pairs of rows.

    Arguments:
        function: maps n rows of `x` and m rows of `y` to an array (n, m).
        x, y: samples, as arrays or pytrees of arrays.
        distinct: leave out pairs of equal index.
    """
    n, m = (len(jax.tree.leaves(side)[0]) for side in (x, y))
    x_blocks, y_blocks = _row_blocks(x, n), _row_blocks(y, m)

    def row_block(block: tuple[PyTree, Array]) -> Array:
        rows, row_index = block

        def column_block(total: Array, block: tuple[PyTree, Array]) -> tuple[Array, None]:
            columns, column_index = block
            counts = (row_index < n)[:, None] & (column_index < m)
            if distinct:
                counts &= row_index[:, None] != column_index
            # Row sums first: one running sum over a million terms would lose digits.
            return total + jnp.sum(jnp.where(counts, function(rows, columns), 0), axis=1), None

        dtype = jax.tree.leaves(rows)[0].dtype
        total, _ = jax.lax.scan(column_block, jnp.zeros(len(row_index), dtype), y_blocks)
        return jnp.sum(total / m)

    sums = jax.lax.map(row_block, x_blocks)
    mean = jnp.sum(sums / n)
    return mean * (m / (m - 1)) if distinct else mean


def _row_blocks(points: PyTree, length: int) -> tuple[PyTree, Array]:
    """Points in blocks of equal size, padded with zeros, and the index of each point."""
    size = min(BLOCK, length)
    padding = -length % size

    def cut(leaf: Array) -> Array:
        padded = jnp.pad(leaf, ((0, padding), (0, 0)))
        return padded.reshape(-1, size, leaf.shape[1])

    return jax.tree.map(cut, points), jnp.arange(length + padding).reshape(-1, size)


def _coordinate_blocks(particles: Float[Array, "n d"]) -> Float[Array, "blocks n k"]:
    """Blocks of coordinates, the last padded with zeros."""
    num_blocks = -(-particles.shape[1] // COORDINATES_AT_A_TIME)
    missing = num_blocks * COORDINATES_AT_A_TIME - particles.shape[1]
    padded = jnp.pad(particles, ((0, 0), (0, missing)))
    return jnp.moveaxis(padded.reshape(len(particles), num_blocks, -1), 1, 0)
