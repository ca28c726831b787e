"""Witness networks f_θ; any Equinox module that maps (d,) to (d,) can be a witness."""

import functools
import math
from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from nvgd._support.errors import InputError, check_count, first_line

Witness = Callable[[Float[Array, " d"]], Float[Array, " d"]]

# Standard deviation of a standard normal truncated at two standard deviations.
TRUNCATED_SD = 0.87962566103423978


class AbstractBatchedWitness(eqx.Module):
    """A witness with its own batched evaluation of values and directional derivatives.

    Any module can be a witness. One of this kind trains faster, because values and tangents share
    each layer's matrix product.
    """

    @abstractmethod
    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The field at one position."""

    @abstractmethod
    def values_and_tangents(
        self, positions: Float[Array, "n d"], directions: Float[Array, "n k d"]
    ) -> tuple[Float[Array, "n d"], Float[Array, "n k d"]]:
        """f(x), and (∂f/∂x)z for the k directions z of each position."""

    @property
    def has_closed_divergence(self) -> bool:
        """Whether `values_and_divergences` is implemented, with tr ∂f/∂x in closed form."""
        return False

    def values_and_divergences(
        self, positions: Float[Array, "n d"]
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """f(x) and div f(x); called only if `has_closed_divergence`."""
        raise NotImplementedError(f"{type(self).__name__} has no divergence in closed form")


class MLP(AbstractBatchedWitness):
    """The paper's witness: two hidden layers of 32 swish units and one learned output scale.

        f_θ(x) = c · (W₃ swish(W₂ swish(W₁x + b₁) + b₂) + b₃)

    Weights are initialised by He's variance scaling, biases to zero, and c to one.

    Arguments:
        dim: d, the size of input and output.
        width: units per hidden layer (256 in the paper's BNN).
        depth: number of hidden layers (3 in the paper's BNN).
        dtype: of the parameters; JAX's default floating-point type if omitted.
        key: random key for the initial weights.

    Examples:
        >>> witness = nvgd.stein.MLP(2, width=64, key=jax.random.key(0))
        >>> witness(jnp.zeros(2)).shape
        (2,)
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
        """A copy with the output layer set to zero, so that f = 0 everywhere."""
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
        """f(x) and (∂f/∂x)z, stacked so that each layer is one matrix product."""
        # Entry 0 along the first axis holds values, the others tangents; each is contiguous.
        stacked = jnp.concatenate([positions[None], jnp.swapaxes(directions, 0, 1)])
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            stacked = stacked @ weight.T
            values, slopes = swish(stacked[0] + bias)
            stacked = jnp.concatenate([values[None], stacked[1:] * slopes])
        stacked = stacked @ self.weights[-1].T
        values = self.scale * (stacked[0] + self.biases[-1])
        return values, self.scale * jnp.swapaxes(stacked[1:], 0, 1)

    @property
    def has_closed_divergence(self) -> bool:
        """True for one or two hidden layers."""
        return len(self.weights) <= 3

    def values_and_divergences(
        self, positions: Float[Array, "n d"]
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """f(x) and div f(x), with the trace in closed form.

        With slopes s₁, s₂ of the two hidden layers, ∂f/∂x = c W₃ diag(s₂) W₂ diag(s₁) W₁, and

            div f = c s₂ᵀ (W₂ ∘ (W₁W₃)ᵀ) s₁,

        which costs one matrix product of hidden-layer size per particle, for any d. With one hidden
        layer, div f = c s₁ᵀ diag(W₁W₂).
        """
        hidden, slopes = swish(positions @ self.weights[0].T + self.biases[0])
        if len(self.weights) == 2:
            traces = slopes @ jnp.sum(self.weights[0] * self.weights[1].T, axis=1)
        else:
            first, middle, last = self.weights
            coupling = middle * (first @ last).T
            hidden, outer_slopes = swish(hidden @ middle.T + self.biases[1])
            traces = jnp.sum(outer_slopes * (slopes @ coupling.T), axis=-1)
        values = hidden @ self.weights[-1].T + self.biases[-1]
        return self.scale * values, self.scale * traces


@jax.custom_jvp
def swish(x: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """x·σ(x) and its slope."""
    values, slopes, _ = _swish_derivatives(x)
    return values, slopes


@swish.defjvp
def _swish_tangents(primals: tuple[Array], tangents: tuple[Array]):
    """Derivatives of both outputs from one exponential; automatic differentiation takes several."""
    values, slopes, curvatures = _swish_derivatives(*primals)
    return (values, slopes), (slopes * tangents[0], curvatures * tangents[0])


def _swish_derivatives(x: Array) -> tuple[Array, Array, Array]:
    gate = jax.nn.sigmoid(x)
    slope = gate * (1 + x * (1 - gate))
    return x * gate, slope, gate * (1 - gate) * (2 + x * (1 - 2 * gate))


@functools.partial(jax.jit, static_argnames=("sizes", "dtype"))
def _initial_layers(
    key: PRNGKeyArray, sizes: tuple[int, ...], dtype: jnp.dtype | None
) -> tuple[list[Array], list[Array], Array]:
    """He's truncated normal weights, from one draw for all layers; zero biases; unit scale."""
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
    """Refuse a witness that does not map (d,) to (d,) or has no parameters to train."""
    given = jax.ShapeDtypeStruct((dim,), dtype)
    try:
        output = eqx.filter_eval_shape(witness, given)
    except Exception as error:
        raise InputError(
            f"the witness could not be evaluated at a position of shape ({dim},): "
            f"{first_line(error)}"
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
    """Cast the floating-point parameters of a witness to `dtype`."""
    return jax.tree.map(
        lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, witness
    )
