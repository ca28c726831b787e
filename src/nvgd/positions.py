"""The form of a position: a flat vector inside, a pytree for the user's functions."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from nvgd.errors import InputError, check_count, first_line

Position = PyTree
Unravel = Callable[[Array], Position]


def layout(dim: int | None, example: Position) -> tuple[int, Unravel | None]:
    """Length of the flat vector, and the function that gives it its form, if it has another one."""
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
    """One name a coordinate, if names were given."""
    if names is None:
        return None
    if unravel is not None:
        raise InputError("names go with a flat position; a pytree's keys are its names already.")
    names = (names,) if isinstance(names, str) else tuple(names)
    are_strings = all(isinstance(name, str) for name in names)
    if len(names) != dim or len(set(names)) != dim or not are_strings:
        raise InputError(f"names must be {dim} different strings, one a coordinate, got {names}.")
    return names


def check_values(
    name: str,
    function: Callable[..., Any],
    dim: int,
    *rest: PyTree,
    shape: tuple[int, ...] = (),
) -> None:
    """Refuse a function of a flat position (and `rest`) that does not return `shape`."""
    flat = jax.ShapeDtypeStruct((dim,), jnp.zeros(()).dtype)
    try:
        value = jax.eval_shape(function, flat, *rest)
    except Exception as error:
        raise InputError(
            f"{name} could not be evaluated at a position with {dim} coordinates: "
            f"{first_line(error)} It must be written with jax.numpy and fit dim or example."
        ) from error
    found = getattr(value, "shape", None)
    if found != shape:
        what = f"a {type(value).__name__}" if found is None else f"an array of shape {found}"
        wanted = f"one value a row, here of shape {shape}" if shape else "a scalar"
        way_out = "" if shape else "; sum its terms"
        raise InputError(f"{name} must return {wanted}, got {what}{way_out}.")
