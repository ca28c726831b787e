"""Ways to find div f = tr ∂f/∂x, beside f itself, at many particles."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from nvgd._support.errors import InputError, check_choice, check_count, plain
from nvgd._support.random_bits import random_signs
from nvgd.stein.witnesses import AbstractBatchedWitness

Field = Callable[[Float[Array, " d"]], Float[Array, " d"]]

# Up to this many dimensions the exact trace costs less than the noise of probes.
MOST_DIMENSIONS_FOR_EXACT_TRACE = 4


class AbstractDivergence(eqx.Module):
    """How div f = tr ∂f/∂x is found: along which probes z, with which weight on each zᵀ(∂f/∂x)z.

    Probes are drawn apart from their use, so that a caller can hold them fixed while f changes.
    """

    @abstractmethod
    def probes(
        self,
        key: PRNGKeyArray,
        num_particles: int,
        dim: int,
        dtype: jnp.dtype,
        stream: Int[Array, ""] | int = 0,
    ) -> Float[Array, "n k d"] | None:
        """k directions for every particle, others for every stream; None if none are needed."""

    @property
    @abstractmethod
    def weight(self) -> float:
        """The factor on the sum of zᵀ(∂f/∂x)z over the k directions."""


class ExactDivergence(AbstractDivergence):
    """The trace of the Jacobian, coordinate by coordinate: d forward derivatives, no noise.

    A witness that knows its trace in closed form, as the `MLP` of up to two hidden layers does,
    is asked for that instead, at less than the price of one probe.
    """

    def probes(self, key, num_particles, dim, dtype, stream=0):
        """The d unit vectors."""
        del key, stream
        return jnp.broadcast_to(jnp.eye(dim, dtype=dtype), (num_particles, dim, dim))

    @property
    def weight(self):
        """A trace is a plain sum."""
        return 1.0


class ClosedFormDivergence(AbstractDivergence):
    """The trace by the witness's own formula: what "exact" means for such a witness."""

    def probes(self, key, num_particles, dim, dtype, stream=0):
        """None are needed."""
        del key, num_particles, dim, dtype, stream

    @property
    def weight(self):
        """A trace is a trace."""
        return 1.0


class HutchinsonDivergence(AbstractDivergence):
    """Hutchinson's unbiased estimate div f(x) ≈ (1/k) Σ zᵀ(∂f/∂x)z with E zzᵀ = I.

    Rademacher probes (±1) have no variance from the Jacobian's diagonal; the paper uses Gaussian
    ones, whose variance grows with it.

    Arguments:
        distribution: "rademacher" or "gaussian".
        num_probes: k.
    """

    distribution: Literal["rademacher", "gaussian"] = "rademacher"
    num_probes: int = eqx.field(default=1, converter=plain)

    def __check_init__(self):
        check_choice("distribution", self.distribution, ("rademacher", "gaussian"))
        check_count("num_probes", self.num_probes)

    def probes(self, key, num_particles, dim, dtype, stream=0):
        """Fresh random directions."""
        shape = (num_particles, self.num_probes, dim)
        if self.distribution == "gaussian":
            return jax.random.normal(jax.random.fold_in(key, stream), shape, dtype)
        return random_signs(key, shape, dtype, stream)

    @property
    def weight(self):
        """The mean over probes."""
        return 1.0 / self.num_probes


def choose_divergence(
    choice: AbstractDivergence | Literal["auto", "exact", "hutchinson"],
    dim: int,
    field: Field | None = None,
) -> AbstractDivergence:
    """The estimator meant by `choice` for this field.

    "auto" is exact in low dimension, or where the field knows its trace in closed form, and
    Hutchinson otherwise.
    """
    is_closed = isinstance(field, AbstractBatchedWitness) and field.has_closed_divergence
    if not isinstance(choice, AbstractDivergence):
        check_choice("divergence", choice, ("auto", "exact", "hutchinson"))
        is_cheap = is_closed or dim <= MOST_DIMENSIONS_FOR_EXACT_TRACE
        is_exact = choice == "exact" or (choice == "auto" and is_cheap)
        choice = ExactDivergence() if is_exact else HutchinsonDivergence()
    if is_closed and isinstance(choice, ExactDivergence):
        return ClosedFormDivergence()
    return choice


def values_and_divergences(
    field: Field,
    particles: Float[Array, "n d"],
    probes: Float[Array, "n k d"] | None,
    weight: float,
) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """f(x) and div f(x) at every particle, from one forward pass with its tangents."""
    if probes is None:
        if not isinstance(field, AbstractBatchedWitness):
            raise InputError(
                f"{type(field).__name__} has no divergence in closed form: use "
                'divergence="exact" or "hutchinson".'
            )
        return field.values_and_divergences(particles)
    if isinstance(field, AbstractBatchedWitness):
        values, tangents = field.values_and_tangents(particles, probes)
    else:

        def derivatives(x: Array, directions: Array) -> tuple[Array, Array]:
            along = jax.vmap(lambda z: jax.jvp(field, (x,), (z,)), out_axes=(None, 0))
            return along(directions)

        values, tangents = jax.vmap(derivatives)(particles, probes)
    return values, weight * jnp.sum(probes * tangents, axis=(1, 2))
