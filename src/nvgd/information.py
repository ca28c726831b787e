"""Second-order information of a target, as functions of a position."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd.coordinates.preconditioners import Information
from nvgd.data import AbstractHostData
from nvgd.errors import InputError
from nvgd.target import Target


def hessian_information(target: Target) -> Information:
    """−∇²log p(x), from all data; it may have negative directions where p is not log-concave."""
    _check_data(target)
    return jax.hessian(lambda x: -target.log_density(x))


def fisher_information(target: Target) -> Information:
    """Σᵢ gᵢgᵢᵀ − ∇²log prior(x), with gᵢ the gradient of one datum's log likelihood.

    The empirical Fisher, or Gauss–Newton, matrix: it never has negative directions from the data,
    and needs first derivatives of the likelihood only.
    """
    _check_data(target)
    if target.log_likelihood is None or target.vectorised:
        raise InputError(
            "fisher_information needs a log_likelihood of one datum at a time, to take the "
            "gradients of; use hessian_information."
        )
    likelihood, data = target.log_likelihood, target.data

    def log_prior(x: Float[Array, " d"]) -> Array:
        return jnp.asarray(target.log_prior(target.structure(x)))

    def information(x: Float[Array, " d"]) -> Float[Array, "d d"]:
        gradients = jax.vmap(
            jax.grad(lambda x, datum: jnp.asarray(likelihood(target.structure(x), datum))),
            in_axes=(None, 0),
        )(x, data)
        return gradients.T @ gradients - jax.hessian(log_prior)(x)

    return information


def _check_data(target: Target) -> None:
    if isinstance(target.data, AbstractHostData):
        raise InputError("curvature is taken from all data, which must be arrays in memory.")
