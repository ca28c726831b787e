"""Information matrices of a target, as functions of a position."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd._support.errors import InputError
from nvgd.targets.target import Target

# −∇²log p at one position, or an approximation to it.
Information = Callable[[Float[Array, " d"]], Float[Array, "d d"]]


def hessian_information(target: Target) -> Information:
    """The observed information −∇²log p(x), from all data.

    It has negative eigenvalues where p is not log-concave.

    Arguments:
        target: a target whose data, if any, are arrays in memory.

    Examples:
        >>> target = nvgd.Target(lambda x: -0.5 * jnp.sum(x**2 / 4.0), dim=2)
        >>> jnp.diag(nvgd.coordinates.hessian_information(target)(jnp.zeros(2))).tolist()
        [0.25, 0.25]
    """
    _check_data(target)
    return jax.hessian(lambda x: -target.log_density(x))


def fisher_information(target: Target) -> Information:
    """The empirical Fisher information Σᵢ gᵢgᵢᵀ − ∇²log prior(x), from all data.

    gᵢ is the gradient of the log likelihood of datum i. The sum is positive semi-definite, and
    needs only first derivatives of the likelihood.

    Arguments:
        target: a target with a `log_likelihood` of one datum and data that are arrays in memory.

    Examples:
        >>> target = nvgd.Target(
        ...     lambda theta: -0.5 * jnp.sum(theta**2),
        ...     dim=1,
        ...     log_likelihood=lambda theta, value: -0.5 * (value - theta[0]) ** 2,
        ...     data=jnp.array([-1.0, 0.0, 2.0]),
        ... )
        >>> nvgd.coordinates.fisher_information(target)(jnp.zeros(1)).tolist()
        [[6.0]]
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
