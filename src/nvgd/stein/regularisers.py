"""Regularisers g(f), which bound the witness: ½|f|² in the paper, and generalisations.

With v = ∇log p − ∇log q, the regularised Stein discrepancy of f is E_q[f·v − g(f)]. It is largest
at f* = ∇g*(v), where g* is the convex conjugate of g. The paper's g(f) = ½|f|² gives f* = v.
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
        """g(f) for each row."""

    def check_dim(self, dim: int) -> None:
        """Refuse a dimension for which g is not defined."""


class PowerNorm(AbstractRegulariser):
    """g(f) = |f|ᵖ/p, with the optimal field f* = v|v|^(q−2), where 1/p + 1/q = 1.

    The paper uses p = 2. f* always has the direction of v. p > 2 evens out speeds (slow particles
    go faster, fast ones slower); p < 2 does the opposite. This is the generalised Wasserstein
    gradient flow of Cheng et al. (2023) with the Euclidean norm.

    Arguments:
        power: p > 1.

    Examples:
        >>> flow = nvgd.NVGD.paper(regulariser=nvgd.stein.PowerNorm(3.0))
    """

    power: float = eqx.field(default=2.0, converter=plain)

    def __check_init__(self):
        if not 1 < float(self.power) < np.inf:
            raise InputError(
                "power must be a finite number > 1, otherwise no optimal witness exists; got "
                f"{self.power!r}."
            )

    def __call__(self, velocities):
        """|f|ᵖ/p, with a finite gradient at f = 0."""
        squares = jnp.sum(velocities**2, axis=-1)
        if is_quadratic(self):
            return 0.5 * squares
        tiny = jnp.finfo(squares.dtype).tiny ** 0.5
        return (squares + tiny) ** (0.5 * self.power) / self.power


def is_quadratic(regulariser: AbstractRegulariser) -> bool:
    """Whether g(f) is known to be ½|f|²."""
    return isinstance(regulariser, PowerNorm) and regulariser.power == 2


class QuadraticForm(AbstractRegulariser):
    """g(f) = ½fᵀQf, with the optimal field f* = Q⁻¹v: the flow is preconditioned by Q⁻¹.

    The paper uses Q = I. Unlike `Preconditioned` coordinates, this regulariser does not transform
    the witness's input; it changes only the training objective.

    Arguments:
        matrix: Q, symmetric and positive definite; a vector stands for a diagonal matrix.

    Examples:
        >>> flow = nvgd.NVGD.paper(regulariser=nvgd.stein.QuadraticForm(jnp.eye(2)))
    """

    matrix: Float[Array, "d d"]

    def __init__(self, matrix: ArrayLike):
        self.matrix = jnp.asarray(positive_matrix("matrix", matrix))

    def check_dim(self, dim):
        """Refuse a dimension other than that of Q."""
        check_matrix_fits("matrix", self.matrix, dim)

    def __call__(self, velocities):
        """½fᵀQf."""
        matrix = self.matrix.astype(velocities.dtype)
        return 0.5 * jnp.sum((velocities @ matrix) * velocities, axis=-1)
