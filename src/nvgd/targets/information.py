"""Second-order information of a target, as functions of a position."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd._support.errors import InputError
from nvgd.targets.target import Target

# −∇²log p, or a positive approximation to it, at one position.
Information = Callable[[Float[Array, " d"]], Float[Array, "d d"]]


def hessian_information(target: Target) -> Information:
    """−∇²log p(x), from all data; it has negative directions where p is not log-concave."""
    _check_data(target)
    return jax.hessian(lambda x: -target.log_density(x))


def fisher_information(target: Target) -> Information:
    """Σᵢ gᵢgᵢᵀ − ∇²log prior(x), with gᵢ the gradient of one datum's log likelihood.

    The empirical Fisher, or Gauss–Newton, matrix: it never has negative directions from the data,
    and needs first derivatives of the likelihood only.
    """
    _check_data(target)
    if target.log_likelihood is None or target.data is None or target.vectorised:
        raise InputError(
            "fisher_information needs a log_likelihood of one datum at a time, to take the "
            "gradients of; use hessian_information."
        )
    likelihood, rows = target.log_likelihood, target.data.rows

    def log_prior(x: Float[Array, " d"]) -> Array:
        return jnp.asarray(target.log_prior(target.structure(x)))

    def information(x: Float[Array, " d"]) -> Float[Array, "d d"]:
        gradients = jax.vmap(
            jax.grad(lambda x, datum: jnp.asarray(likelihood(target.structure(x), datum))),
            in_axes=(None, 0),
        )(x, rows)
        return gradients.T @ gradients - jax.hessian(log_prior)(x)

    return information


def _check_data(target: Target) -> None:
    if target.data is not None and target.data.rows is None:
        raise InputError("curvature is taken from all data, which must be arrays in memory.")
