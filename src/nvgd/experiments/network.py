"""The Bayesian network of Figure 7: two convolutions and a linear layer, 4594 parameters.

A run on MNIST spends its time on gradients of many networks on one batch. A convolution is one
matrix product with the patches that it sees; all networks share the patches of the images. The
gradients of these products are written by hand, because automatic ones have layouts that make XLA
copy and transpose the patches for every network, which takes twice as long as the products.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

CHANNELS, CLASSES, SIDE = 8, 10, 7
NUM_FEATURES = CHANNELS * SIDE * SIDE
SHAPES = (
    (CHANNELS, 9),
    (CHANNELS,),
    (CHANNELS, CHANNELS * 9),
    (CHANNELS,),
    (CLASSES, NUM_FEATURES),
    (CLASSES,),
)
SIZES = [int(np.prod(shape)) for shape in SHAPES]
NUM_PARAMETERS = sum(SIZES)
# Offsets (row, column) of a 3 × 3 kernel.
TAPS = [(row, column) for row in range(3) for column in range(3)]
# Parities (row, column) of an output pixel of the first convolution.
PARITIES = [(row, column) for row in range(2) for column in range(2)]


class Setting(NamedTuple):
    """The scale of the pixels, and of the weights under the prior and at the start.

    Arguments:
        largest_pixel: the number that pixels of 0 to 255 are divided by.
        prior_scale: σ of the prior N(0, σ²) of every parameter.
    """

    largest_pixel: float
    prior_scale: float


SETTINGS = {
    "unit": Setting(255.0, 0.15),
    # The setting of the authors' stored results.
    "authors": Setting(1.0, 0.01),
}

# Patches of the first convolution, one column per output pixel, and their transpose.
Patches = tuple[Float[Array, "9 pixels"], Float[Array, "pixels 9"]]


def unpack(parameters: Float[Array, " d"]) -> list[Array]:
    """Weights and biases of the two convolutions and of the linear layer."""
    parts = jnp.split(parameters, np.cumsum(SIZES)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, SHAPES, strict=True)]


def patches(images: Float[Array, "rows 28 28"]) -> Patches:
    """The patches of the first convolution, ordered so that the second one needs no strided reads.

    The 14 × 14 output pixels form four planes of 7 × 7, by the parity of row and column: a 3 × 3
    kernel with stride 2 then reads whole planes, shifted by at most one. The patches do not depend
    on the parameters, so that all networks share them.
    """
    padded = jnp.pad(images, ((0, 0), (0, 1), (0, 1)))
    planes = [
        jnp.stack(
            [padded[:, 2 * a + row :: 4, 2 * b + column :: 4][:, :SIDE, :SIDE] for a, b in PARITIES]
        )
        for row, column in TAPS
    ]
    columns = jnp.moveaxis(jnp.stack(planes), 2, -1).reshape(len(TAPS), -1)
    return columns, columns.T


def logits(parameters: Float[Array, " d"], shared: Patches) -> Float[Array, "rows classes"]:
    """Two 3 × 3 convolutions with stride 2, ReLU after each, and a linear layer."""
    kernel_1, bias_1, kernel_2, bias_2, weights, bias = unpack(parameters)
    hidden = jax.nn.relu(_shared_product(kernel_1, *shared) + bias_1[:, None])
    seen = _taps(hidden.reshape(CHANNELS, len(PARITIES), SIDE, SIDE, -1))
    hidden = jax.nn.relu(_product(kernel_2, seen.reshape(CHANNELS * 9, -1)) + bias_2[:, None])
    features = hidden.reshape(NUM_FEATURES, -1)
    return (weights @ features).T + bias


def log_prior(setting: Setting, parameters: Float[Array, " d"]) -> Float[Array, ""]:
    """N(0, σ²) on every parameter, up to a constant."""
    return -0.5 * parameters @ parameters / setting.prior_scale**2


def log_likelihood(
    setting: Setting, parameters: Float[Array, " d"], rows: tuple[Array, Array]
) -> Float[Array, " rows"]:
    """Categorical log likelihood of every row of a batch."""
    images, labels = rows
    values = jax.nn.log_softmax(logits(parameters, patches(images / setting.largest_pixel)))
    return jnp.take_along_axis(values, labels[:, None].astype(int), axis=1)[:, 0]


@jax.custom_vjp
def _shared_product(kernel: Array, columns: Array, transposed: Array) -> Array:
    """kernel @ columns, without a gradient for the columns."""
    del transposed
    return kernel @ columns


_shared_product.defvjp(
    lambda kernel, columns, transposed: (kernel @ columns, transposed),
    lambda transposed, cotangent: (cotangent @ transposed, None, None),
)


@jax.custom_vjp
def _product(kernel: Array, columns: Array) -> Array:
    """kernel @ columns, with gradients that never transpose the columns."""
    return kernel @ columns


def _product_gradients(factors: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    kernel, columns = factors
    return (columns @ cotangent.T).T, kernel.T @ cotangent


_product.defvjp(lambda kernel, columns: (kernel @ columns, (kernel, columns)), _product_gradients)


@jax.custom_vjp
def _taps(
    hidden: Float[Array, "channels 4 side side rows"],
) -> Float[Array, "channels 9 side side rows"]:
    """The patches of the second convolution: for each offset its plane, shifted by at most one."""
    padded = jnp.pad(hidden, ((0, 0), (0, 0), (0, 1), (0, 1), (0, 0)))
    seen = [
        padded[:, PARITIES.index((row % 2, column % 2)), row // 2 :, column // 2 :]
        for row, column in TAPS
    ]
    return jnp.stack([plane[:, :SIDE, :SIDE] for plane in seen], axis=1)


def _taps_gradient(_: None, cotangent: Array) -> tuple[Array]:
    """The taps of each plane, shifted back and added: nine planes instead of 36."""

    def shifted_back(tap: int) -> Array:
        down, right = TAPS[tap][0] // 2, TAPS[tap][1] // 2
        kept = cotangent[:, tap, : SIDE - down, : SIDE - right]
        return jnp.pad(kept, ((0, 0), (down, 0), (right, 0), (0, 0)))

    planes = [
        sum(
            shifted_back(tap)
            for tap, (row, column) in enumerate(TAPS)
            if (row % 2, column % 2) == parity
        )
        for parity in PARITIES
    ]
    return (jnp.stack(planes, axis=1),)


_taps.defvjp(lambda hidden: (_taps(hidden), None), _taps_gradient)
