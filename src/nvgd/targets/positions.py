"""Conversion of positions between flat vectors and the user's pytrees."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from nvgd._support.errors import InputError, check_count

Position = PyTree
Unravel = Callable[[Array], Position]


def position_form(dim: int | None, example: Position) -> tuple[int, Unravel | None]:
    """The length of a flat position, and the function that maps it to the user's pytree.

    The function is None if the user's positions are flat vectors.
    """
    if (dim is None) == (example is None):
        raise InputError(
            "give either dim (the length of a flat position) or example (a position as the log "
            f"density takes it), got dim={dim!r} and example={example!r}."
        )
    if dim is not None:
        check_count("dim", dim)
        return int(dim), None
    leaves = jax.tree.leaves(example)
    try:
        arrays = [jnp.asarray(leaf) for leaf in leaves]
    except (TypeError, ValueError):
        raise InputError(f"example must hold only numbers and arrays, got {example!r}.") from None
    if not arrays or not all(jnp.issubdtype(array.dtype, jnp.floating) for array in arrays):
        raise InputError(
            "example must hold floating-point values only (discrete parameters cannot follow a "
            f"gradient), got {[str(array.dtype) for array in arrays]}."
        )
    flat, unravel = ravel_pytree(jax.tree.map(jnp.asarray, example))
    if flat.size == 0:
        raise InputError("example must hold at least one number, got an empty one.")
    is_flat_vector = jax.tree.structure(example) == jax.tree.structure(0) and arrays[0].ndim == 1
    return flat.size, None if is_flat_vector else unravel


def checked_names(
    names: Sequence[str] | None, dim: int, unravel: Unravel | None
) -> tuple[str, ...] | None:
    """Check that there is one distinct name per coordinate, if names were given."""
    if names is None:
        return None
    if unravel is not None:
        raise InputError("names go with a flat position; a pytree's keys are its names already.")
    names = (names,) if isinstance(names, str) else tuple(names)
    are_strings = all(isinstance(name, str) for name in names)
    if len(names) != dim or len(set(names)) != dim or not are_strings:
        raise InputError(f"names must be {dim} different strings, one per coordinate, got {names}.")
    return names


def coordinate_names(
    dim: int, unravel: Unravel | None, names: tuple[str, ...] | None
) -> Sequence[str]:
    """One name per coordinate of the flat position, in unconstrained space."""
    if names is not None:
        return names
    if unravel is None:
        return [f"x[{i}]" for i in range(dim)]
    leaves, _ = jax.tree_util.tree_flatten_with_path(jax.eval_shape(unravel, flat_shape(dim)))
    return [
        element_name(leaf_name(path), index)
        for path, leaf in leaves
        for index in np.ndindex(leaf.shape)
    ]


def leaf_name(path: Any, default: str = "x") -> str:
    """The name of a leaf of a pytree: its keys, joined by dots."""
    return jax.tree_util.keystr(path, simple=True, separator=".") or default


def element_name(name: str, index: Sequence[Any]) -> str:
    """The name of an array element, such as `weights[2, 0]`; the name alone for a scalar."""
    return name + (f"[{', '.join(map(str, index))}]" if index else "")


def flatten_positions(
    dim: int, unravel: Unravel | None, positions: PyTree, name: str = "initial"
) -> Float[Array, "n d"]:
    """Positions with a leading axis, flat or as pytrees, as one floating-point array (n, dim).

    Arguments:
        name: what error messages call the positions.
    """
    like = flat_shape(dim) if unravel is None else jax.eval_shape(unravel, flat_shape(dim))
    wanted = f"an array (num_particles, {dim})"
    if unravel is not None:
        shapes = jax.tree.map(lambda leaf: ("num_particles", *leaf.shape), like)
        wanted += f" or a pytree of arrays with shapes {shapes}"
    try:
        if jax.tree.structure(like) == jax.tree.structure(0) and not isinstance(positions, dict):
            positions = np.asarray(positions)
        if unravel is not None and jax.tree.structure(positions) == jax.tree.structure(like):
            positions = _raveled(positions, like)
        if isinstance(positions, dict):
            raise TypeError("a dictionary")
        particles = jnp.asarray(positions)
    except (TypeError, ValueError):
        found = jax.tree.map(np.shape, positions)
        raise InputError(f"{name} must be {wanted}, got shapes {found}.") from None
    if particles.ndim != 2 or particles.shape[1] != dim or not len(particles):
        raise InputError(f"{name} must be {wanted}, got shape {particles.shape}.")
    # Particles must be floating-point, and linear algebra does not support half precision.
    if jnp.issubdtype(particles.dtype, jnp.integer) or particles.dtype.itemsize < 4:
        particles = particles.astype(jnp.result_type(float))
    if not jnp.issubdtype(particles.dtype, jnp.floating):
        raise InputError(f"{name} must hold real numbers, got {particles.dtype}.")
    return particles


def _raveled(positions: PyTree, like: PyTree) -> PyTree:
    """A pytree of stacked positions as one array; unchanged if its shapes do not fit `like`."""
    arrays = jax.tree.map(jnp.asarray, positions)
    leaves = jax.tree.leaves(arrays)
    trailing = [leaf.shape[1:] for leaf in leaves]
    fits = trailing == [leaf.shape for leaf in jax.tree.leaves(like)]
    if fits and all(leaf.ndim and len(leaf) == len(leaves[0]) for leaf in leaves):
        return jax.vmap(lambda position: ravel_pytree(position)[0])(arrays)
    return positions


def flat_shape(dim: int) -> jax.ShapeDtypeStruct:
    """Shape and dtype of a flat position."""
    return jax.ShapeDtypeStruct((dim,), jnp.result_type(float))
