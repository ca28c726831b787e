"""Fixed groups of particles, so that sorting and resampling never cross devices.

Sums over particles are cheap across devices. Ranking all particles, or copying one particle to an
arbitrary index, would move all particles between devices. From 512 particles on, particles form up
to 64 groups of 256 or more, each contiguous in memory, and ranks, random splits and rebirths stay
within a group. Particles are exchangeable, so each group represents all of them.
"""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, PyTree

from nvgd._support.devices import everywhere, is_split

MOST_GROUPS = 64
SMALLEST_GROUP = 256
# Most rows that a costly function of single rows sees at once.
ROWS_PER_BLOCK = 65_536
# Costly computations over pairs, and searches, use an evenly spaced subset of this many particles.
MOST_SELECTED = 2048


def num_groups(num_particles: int) -> int:
    """The number of groups: a power of two that does not depend on the number of devices."""
    number = 1
    while (
        number < MOST_GROUPS
        and num_particles % (2 * number) == 0
        and num_particles // (2 * number) >= SMALLEST_GROUP
    ):
        number *= 2
    return number


def split_groups(values: Array) -> Array:
    """Reshape (n, …) to (groups, n/groups, …)."""
    number = num_groups(len(values))
    return values.reshape(number, len(values) // number, *values.shape[1:])


def join_groups(values: Array) -> Array:
    """Reshape (groups, m, …) to (groups · m, …)."""
    return values.reshape(-1, *values.shape[2:])


def by_group(function: Callable[..., PyTree], *arrays: Any) -> PyTree:
    """Apply `function` to each group of rows of arrays of equal length, and join the results."""
    if num_groups(len(arrays[0])) == 1:
        return function(*arrays)
    return jax.tree.map(join_groups, jax.vmap(function)(*map(split_groups, arrays)))


def first_of_groups(values: Array, most: int) -> Array:
    """The first rows of each group, at most `most` in all."""
    if len(values) <= most:
        return values
    groups = split_groups(values)
    return join_groups(groups[:, : max(most // len(groups), 1)])


def in_blocks(function: Callable[[Any], Array], values: Array) -> Array:
    """Apply `function` to every row, on one device in blocks, which bounds the memory."""
    if is_split() or len(values) <= ROWS_PER_BLOCK:
        return jax.vmap(function)(values)
    return jax.lax.map(function, values, batch_size=ROWS_PER_BLOCK)


def group_by_group(function: Callable[..., PyTree], *arrays: Any) -> PyTree:
    """`by_group`, on one device one group after another, which bounds the memory."""
    if is_split() or num_groups(len(arrays[0])) == 1:
        return by_group(function, *arrays)
    groups = tuple(map(split_groups, arrays))
    return jax.tree.map(join_groups, jax.lax.map(lambda parts: function(*parts), groups))


def even_selection(values: Array, most: int = MOST_SELECTED) -> Array:
    """At most 2,048 rows, or `most`, evenly spaced, replicated on every device."""
    return everywhere(values[:: -(-len(values) // most)])
