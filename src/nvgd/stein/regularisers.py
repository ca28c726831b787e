"""What keeps a witness from growing without bound: ½|f|² in the paper, and generalisations.

The regularised Stein discrepancy of f, with v = ∇log p − ∇log q, is E_q[f·v − g(f)]; it is largest
at f* = ∇g*(v), g* the convex conjugate of g. The paper's g(f) = ½|f|² gives f* = v.
"""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from nvgd._support.errors import InputError, check_matrix_fits, plain, positive_matrix


class AbstractRegulariser(eqx.Module):
    """A convex function g of a velocity."""

    @abstractmethod
    def __call__(self, velocities: Float[Array, "n d"]) -> Float[Array, " n"]:
        """g(f) of each row."""

    def check_dim(self, dim: int) -> None:
        """Refuse a dimension that g does not fit."""


class PowerNorm(AbstractRegulariser):
    """g(f) = |f|ᵖ/p: the optimal field is v|v|^(q−2), with 1/p + 1/q = 1.

    p = 2 is the paper's. The direction of f* is that of v always; p > 2 evens out speeds (slow
    particles go faster, fast ones slower), p < 2 does the contrary. From the generalised
    Wasserstein gradient flow of Cheng et al. (2023), with the Euclidean norm.

    Arguments:
        power: p > 1.
    """

    power: float = eqx.field(default=2.0, converter=plain)

    def __check_init__(self):
        if not 1 < float(self.power) < np.inf:
            raise InputError(
                f"power must be a finite number > 1, or no witness is best; got {self.power!r}."
            )

    def __call__(self, velocities):
        """|f|ᵖ/p, with a gradient also at f = 0."""
        squares = jnp.sum(velocities**2, axis=-1)
        if is_quadratic(self):
            return 0.5 * squares
        tiny = jnp.finfo(squares.dtype).tiny ** 0.5
        return (squares + tiny) ** (0.5 * self.power) / self.power


def is_quadratic(regulariser: AbstractRegulariser) -> bool:
    """Whether g(f) is known to be ½|f|²."""
    return isinstance(regulariser, PowerNorm) and regulariser.power == 2


class QuadraticForm(AbstractRegulariser):
    """g(f) = ½fᵀQf: the optimal field is Q⁻¹v, the flow preconditioned by Q⁻¹.

    Q = I is the paper's. Unlike `Preconditioned` coordinates it leaves the witness's input as
    it is, and only changes what it is asked for.

    Arguments:
        matrix: Q, symmetric and positive definite; a vector stands for a diagonal.
    """

    matrix: Float[Array, "d d"]

    def __init__(self, matrix: ArrayLike):
        self.matrix = jnp.asarray(positive_matrix("matrix", matrix))

    def check_dim(self, dim):
        """One row per dimension."""
        check_matrix_fits("matrix", self.matrix, dim)

    def __call__(self, velocities):
        """½fᵀQf."""
        matrix = self.matrix.astype(velocities.dtype)
        return 0.5 * jnp.sum((velocities @ matrix) * velocities, axis=-1)
