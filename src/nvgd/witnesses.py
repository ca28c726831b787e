"""Networks f_θ that stand for the witness; any Equinox module from (d,) to (d,) will do."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from nvgd.errors import InputError, check_count

Witness = Callable[[Float[Array, " d"]], Float[Array, " d"]]


class MLP(eqx.Module):
    """The paper's witness: two hidden layers of 32 swish units and one learned output scale.

        f_θ(x) = c · W₃ swish(W₂ swish(W₁ x + b₁) + b₂) + …

    Weights start from He's variance scaling, biases at zero, c at one.

    Arguments:
        dim: d, the size of input and output.
        width, depth: units a hidden layer and number of hidden layers (the paper's BNN: 256, 3).
    """

    network: eqx.nn.MLP
    scale: Float[Array, ""]

    def __init__(
        self,
        dim: int,
        *,
        width: int = 32,
        depth: int = 2,
        dtype: jnp.dtype | None = None,
        key: PRNGKeyArray,
    ):
        check_count("width", width)
        check_count("depth", depth)
        network = eqx.nn.MLP(dim, dim, width, depth, jax.nn.silu, dtype=dtype, key=key)
        self.network = _he_initialised(network, key)
        self.scale = jnp.ones((), dtype)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The field at one position."""
        return self.scale * self.network(x)


def _he_initialised(network: eqx.nn.MLP, key: PRNGKeyArray) -> eqx.nn.MLP:
    # Equinox stores weights as (out, in), hence fan-in on the last axis.
    draw = jax.nn.initializers.variance_scaling(
        2.0, "fan_in", "truncated_normal", in_axis=-1, out_axis=-2
    )
    keys = jax.random.split(key, len(network.layers))
    return eqx.tree_at(
        lambda net: [layer.weight for layer in net.layers] + [layer.bias for layer in net.layers],
        network,
        [
            draw(k, layer.weight.shape, layer.weight.dtype)
            for k, layer in zip(keys, network.layers, strict=True)
        ]
        + [jnp.zeros_like(layer.bias) for layer in network.layers],
    )


def check_witness(witness: Witness, dim: int, dtype: jnp.dtype) -> None:
    """Refuse a witness that does not map (d,) to (d,), or has nothing to train."""
    given = jax.ShapeDtypeStruct((dim,), dtype)
    try:
        output = eqx.filter_eval_shape(witness, given)
    except Exception as error:
        raise InputError(
            f"the witness could not be evaluated at a position of shape ({dim},): "
            f"{str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from error
    shape = getattr(output, "shape", type(output).__name__)
    if shape != (dim,):
        raise InputError(
            f"the witness must map a position of shape ({dim},) to a velocity of the same shape, "
            f"got {shape}; set its output size to {dim}."
        )
    if not jax.tree.leaves(eqx.filter(witness, eqx.is_inexact_array)):
        raise InputError("the witness has no floating-point parameters to train.")


def cast(witness: PyTree, dtype: jnp.dtype) -> PyTree:
    """The witness with its floating-point parameters in `dtype`, that of the particles."""
    return jax.tree.map(
        lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, witness
    )
