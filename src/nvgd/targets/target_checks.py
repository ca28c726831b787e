"""Checks of the arguments of `Target`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from nvgd._support.errors import InputError, check_count, first_line
from nvgd.targets.data import AbstractData
from nvgd.targets.positions import flat_shape


def check_values(
    name: str,
    function: Callable[..., Any],
    dim: int,
    *rest: PyTree,
    shape: tuple[int, ...] = (),
) -> jax.extend.core.ClosedJaxpr:
    """Refuse a function of a flat position (and `rest`) whose output does not have `shape`.

    Returns the trace of the function.
    """
    try:
        traced, value = jax.make_jaxpr(function, return_shape=True)(flat_shape(dim), *rest)
    except Exception as error:
        sees = ", and takes one row of data at a time unless vectorised=True" if rest else ""
        raise InputError(
            f"{name} could not be evaluated at a position with {dim} coordinates: "
            f"{first_line(error)} It must be written with jax.numpy and fit dim or example{sees}."
        ) from error
    found = getattr(value, "shape", None)
    if found != shape:
        what = f"a {type(value).__name__}" if found is None else f"an array of shape {found}"
        wanted = f"one value per row, here of shape {shape}" if shape else "a scalar"
        way_out = "; do not sum over rows" if shape else "; sum its terms"
        raise InputError(f"{name} must return {wanted}, got {what}{way_out}.")
    return traced


def check_constrain(
    show: Callable[[jax.Array], Any], dim: int, names: tuple[str, ...] | None
) -> None:
    """Refuse a `constrain` that cannot be evaluated or whose output does not fit the names."""
    try:
        shown = jax.eval_shape(show, flat_shape(dim))
    except Exception as error:
        raise InputError(
            f"constrain could not be evaluated at a position: {first_line(error)}"
        ) from error
    if names is not None and getattr(shown, "shape", None) != (dim,):
        raise InputError(
            f"names go with a constrain that returns {dim} numbers, one per name; otherwise leave "
            "names out and return a dictionary."
        )


def check_data(data: AbstractData | None, has_likelihood: bool, batch_size: int | None) -> None:
    """Refuse data without a likelihood, a likelihood without data, and wrong batch sizes."""
    if not has_likelihood and (data is not None or batch_size is not None):
        raise InputError(
            "data and batch_size need a log_likelihood(position, datum) that uses them."
        )
    if data is None:
        if has_likelihood:
            raise InputError("log_likelihood sums over data: give data= with its rows.")
        return
    own = data.own_batch_size
    if data.rows is None and batch_size is None:
        raise InputError("data on disk can only be used in batches: give batch_size.")
    if own is not None and batch_size != own:
        raise InputError(f"batch_size is that of the stream's first batch, {own}: leave it out.")
    if batch_size is not None:
        check_count("batch_size", batch_size)
        if batch_size > data.num_rows:
            raise InputError(
                f"batch_size must be at most the number of data rows, {data.num_rows}, got "
                f"{batch_size}: "
                + (
                    "leave it out to use all rows in every step."
                    if own is None
                    else "num_rows of a BatchStream counts all rows, not batches."
                )
            )


def check_likelihood(
    likelihood: Callable[..., Any], dim: int, example: PyTree, vectorised: bool
) -> None:
    """Refuse a likelihood that does not return one value per row, or that ignores its row."""
    rows = (3,) if vectorised else ()
    datum = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((*rows, *np.shape(leaf)[1:]), jnp.result_type(leaf)),
        example,
    )
    traced = check_values("log_likelihood", likelihood, dim, datum, shape=rows).jaxpr
    used = {id(value) for equation in traced.eqns for value in equation.invars}
    used |= {id(value) for value in traced.outvars}
    if not any(id(value) in used for value in traced.invars[1:]):
        raise InputError(
            "log_likelihood must be that of the one row it is given, but does not use it: take the "
            "values from its second argument, and do not sum over the data."
        )
