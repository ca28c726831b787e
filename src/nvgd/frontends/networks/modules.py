"""Networks of other packages, as a function of parameters and one row."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from nvgd._support.errors import InputError, first_line

STATEFUL = (
    "network holds a layer whose state changes with the data, such as BatchNorm or SpectralNorm, "
    "which a posterior over parameters cannot have: use LayerNorm, GroupNorm or WeightNorm instead."
)


class Apply(eqx.Module):
    """`(parameters, row) -> output`, for one of the kinds of network that are accepted.

    Arguments:
        function: combines parameters and what else belongs to the network, and evaluates it.
        rest: what else belongs to it.
        shape: shape to which outputs are brought.
    """

    function: Callable[[PyTree, PyTree, Array], Any]
    rest: PyTree
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, parameters: PyTree, row: Array) -> Array:
        """The output for one row."""
        return self.function(parameters, self.rest, row).reshape(self.shape)


class Parts(NamedTuple):
    """A network taken apart."""

    function: Callable[[PyTree, PyTree, Array], Any]
    parameters: PyTree
    rest: PyTree
    output_axis: int
    """Which axis of a weight counts its outputs."""


def take_apart(network: Any, parameters: PyTree) -> Parts:
    """Parameters of a network, and the function that they belong to."""
    if isinstance(network, eqx.Module) and parameters is None:
        return _equinox_parts(network)
    # A module of Flax can only exist if Flax has been imported.
    nnx = sys.modules.get("flax.nnx")
    if nnx is not None and isinstance(network, nnx.Module):
        return _nnx_parts(nnx, network)
    if isinstance(network, tuple) and any(isinstance(part, eqx.nn.State) for part in network):
        raise InputError(STATEFUL)
    if not callable(network) or parameters is None:
        raise InputError(
            "network must be an Equinox module, a Flax NNX module, or a function (parameters, row) "
            f"together with parameters=, got {network!r}"
            + (" without parameters=." if callable(network) else ".")
        )
    _check_leaves(parameters)
    return Parts(_apply_function, jax.tree.map(jnp.asarray, parameters), network, -1)


def output_shape(parts: Parts, row: jax.ShapeDtypeStruct) -> tuple[int, ...]:
    """Shape of the output for one row."""
    try:
        output = jax.eval_shape(
            lambda parameters, row: parts.function(parameters, parts.rest, row),
            parts.parameters,
            row,
        )
    except Exception as error:
        raise InputError(
            f"network could not be evaluated at one row of X, of shape {row.shape}: "
            f"{first_line(error)} It takes a row without the batch axis and no random key."
        ) from error
    if not hasattr(output, "shape"):
        raise InputError(
            f"network must return one array, got a {type(output).__name__}: wrap it in a function "
            "that picks the output."
        )
    return output.shape


def _apply_module(parameters: PyTree, rest: PyTree, row: Array) -> Any:
    return eqx.combine(parameters, rest)(row)


def _apply_function(parameters: PyTree, rest: Callable[..., Any], row: Array) -> Any:
    return rest(parameters, row)


def _equinox_parts(network: eqx.Module) -> Parts:
    def is_special(leaf: Any) -> bool:
        return isinstance(leaf, eqx.nn.StateIndex | eqx.nn.Dropout)

    for leaf in jax.tree.leaves(network, is_leaf=is_special):
        if isinstance(leaf, eqx.nn.StateIndex):
            raise InputError(STATEFUL)
        if isinstance(leaf, eqx.nn.Dropout) and not leaf.inference and float(leaf.p) > 0:
            raise InputError(
                "network holds a Dropout layer in training mode, and its noise would come on top "
                "of the posterior's: pass eqx.nn.inference_mode(network), or leave it out."
            )
    _check_leaves([leaf for leaf in jax.tree.leaves(network) if eqx.is_array(leaf)])
    parameters, rest = eqx.partition(network, eqx.is_inexact_array)
    return Parts(_apply_module, parameters, rest, 0)


def _nnx_parts(nnx: Any, network: Any) -> Parts:
    graph, parameters, others = nnx.split(network, nnx.Param, ...)
    variables = jax.tree.leaves(others, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
    if variables:
        kinds = {type(variable).__name__ for variable in variables}
        raise InputError(
            "network holds state besides its parameters "
            f"({', '.join(sorted(kinds))}), as batch norm and dropout do: use LayerNorm instead "
            "of BatchNorm, and leave Dropout out or build it with rngs=None and deterministic=True."
        )

    _check_leaves(parameters)
    return Parts(_apply_nnx, parameters, graph, -1)


def _apply_nnx(parameters: PyTree, rest: Any, row: Array) -> Any:
    return sys.modules["flax.nnx"].merge(rest, parameters)(row)


def _check_leaves(parameters: PyTree) -> None:
    """Refuse parameters that are not real floating-point arrays."""
    for leaf in jax.tree.leaves(parameters):
        try:
            dtype = jnp.asarray(leaf).dtype
        except (TypeError, ValueError):
            raise InputError(f"parameters must hold arrays only, got {leaf!r}.") from None
        if not jnp.issubdtype(dtype, jnp.floating):
            raise InputError(
                f"network holds an array of {dtype}, which cannot follow a gradient: if it is a "
                "constant, keep it as a tuple in a static field, eqx.field(static=True)."
            )
