"""Particles in crowds that keep to themselves where particles are sorted or change places.

A sum over particles is cheap wherever they are; an order of all of them, or a place taken from any
other, would move all particles between devices. From 512 particles on they form up to 64 crowds of
256 or more, each of neighbours in memory: ranks, random splits and rebirths are theirs alone.
As particles are exchangeable, a crowd is a fair sample of all.
"""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, PyTree

from nvgd.sharding import everywhere

MOST_CROWDS = 64
SMALLEST_CROWD = 256
# Of more particles an even selection is as telling, where all pairs or searches are costly.
MOST_SELECTED = 2048


def num_crowds(num_particles: int) -> int:
    """A power of two, the same on any number of devices."""
    number = 1
    while (
        number < MOST_CROWDS
        and num_particles % (2 * number) == 0
        and num_particles // (2 * number) >= SMALLEST_CROWD
    ):
        number *= 2
    return number


def parted(values: Array) -> Array:
    """(n, …) as (crowds, n/crowds, …)."""
    number = num_crowds(len(values))
    return values.reshape(number, len(values) // number, *values.shape[1:])


def joined(values: Array) -> Array:
    """(crowds, m, …) as (crowds · m, …)."""
    return values.reshape(-1, *values.shape[2:])


def in_crowds(function: Callable[..., PyTree], *arrays: Any) -> PyTree:
    """`function` of every crowd's share of arrays of one length, put together again."""
    if num_crowds(len(arrays[0])) == 1:
        return function(*arrays)
    return jax.tree.map(joined, jax.vmap(function)(*map(parted, arrays)))


def selection(values: Array) -> Array:
    """At most 2,048 rows, evenly spaced, the whole of them on every device."""
    return everywhere(values[:: -(-len(values) // MOST_SELECTED)])
