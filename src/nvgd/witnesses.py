"""Networks f_θ that stand for the witness; any Equinox module from (d,) to (d,) will do."""

import functools
import math
from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from nvgd.errors import InputError, check_count

Witness = Callable[[Float[Array, " d"]], Float[Array, " d"]]

# Of a standard normal cut off at two standard deviations.
TRUNCATED_SD = 0.87962566103423978


class AbstractBatchedWitness(eqx.Module):
    """A witness that can evaluate many positions, with derivatives along directions, at once.

    Any module will do as a witness; one of this kind trains faster, because value and tangents
    share each layer's matrix product.
    """

    @abstractmethod
    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The field at one position."""

    @abstractmethod
    def values_and_tangents(
        self, positions: Float[Array, "n d"], directions: Float[Array, "n k d"]
    ) -> tuple[Float[Array, "n d"], Float[Array, "n k d"]]:
        """f(x) and (∂f/∂x)z for the k directions z of every position."""


class MLP(AbstractBatchedWitness):
    """The paper's witness: two hidden layers of 32 swish units and one learned output scale.

        f_θ(x) = c · (W₃ swish(W₂ swish(W₁x + b₁) + b₂) + b₃)

    Weights start from He's variance scaling, biases at zero, c at one.

    Arguments:
        dim: d, the size of input and output.
        width, depth: units a hidden layer and number of hidden layers (the paper's BNN: 256, 3).
    """

    weights: list[Float[Array, "outputs inputs"]]
    biases: list[Float[Array, " outputs"]]
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
        check_count("dim", dim)
        check_count("width", width)
        check_count("depth", depth)
        sizes = (dim, *[width] * depth, dim)
        self.weights, self.biases, self.scale = _initial_layers(key, sizes, dtype)

    def zeroed(self) -> "MLP":
        """The same hidden layers, with an output layer that gives zero everywhere."""
        last = (self.weights[-1], self.biases[-1])
        zeros = tuple(jnp.zeros_like(leaf) for leaf in last)
        return eqx.tree_at(lambda mlp: (mlp.weights[-1], mlp.biases[-1]), self, zeros)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The field at one position."""
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = jax.nn.silu(weight @ x + bias)
        return self.scale * (self.weights[-1] @ x + self.biases[-1])

    def values_and_tangents(
        self, positions: Float[Array, "n d"], directions: Float[Array, "n k d"]
    ) -> tuple[Float[Array, "n d"], Float[Array, "n k d"]]:
        """Value and tangents stacked, so that a layer is one matrix product."""
        # Row 0 of the middle axis is the value, the others are tangents.
        stacked = jnp.concatenate([positions[:, None], directions], axis=1)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            stacked = stacked @ weight.T
            before = stacked[:, 0] + bias
            gate = jax.nn.sigmoid(before)
            slope = gate * (1 + before * (1 - gate))
            tangents = stacked[:, 1:] * slope[:, None]
            stacked = jnp.concatenate([(before * gate)[:, None], tangents], axis=1)
        stacked = stacked @ self.weights[-1].T
        return self.scale * (stacked[:, 0] + self.biases[-1]), self.scale * stacked[:, 1:]


@functools.partial(jax.jit, static_argnames=("sizes", "dtype"))
def _initial_layers(
    key: PRNGKeyArray, sizes: tuple[int, ...], dtype: jnp.dtype | None
) -> tuple[list[Array], list[Array], Array]:
    """He's truncated normal weights from one draw for all layers, zero biases, a scale of one."""
    shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    draws = jax.random.truncated_normal(key, -2.0, 2.0, (int(ends[-1]),), dtype)
    weights = [
        math.sqrt(2 / shape[1]) / TRUNCATED_SD * part.reshape(shape)
        for shape, part in zip(shapes, jnp.split(draws, ends[:-1]), strict=True)
    ]
    biases = [jnp.zeros(outputs, draws.dtype) for outputs in sizes[1:]]
    return weights, biases, jnp.ones((), draws.dtype)


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
