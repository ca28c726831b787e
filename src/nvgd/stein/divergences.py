"""Exact and stochastic evaluation of the divergence div f = tr ∂f/∂x of a field f."""

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

# Up to this dimension, the exact trace is worth its cost: it avoids the noise of probes.
MOST_DIMENSIONS_FOR_EXACT_TRACE = 4


class AbstractDivergence(eqx.Module):
    """A rule div f ≈ w Σ zᵀ(∂f/∂x)z over k probes z, with w → `weight`.

    Probes are drawn separately, so that a caller can hold them fixed while f changes.
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
        """k probes per particle, different in each stream; None if no probes are needed."""

    @property
    @abstractmethod
    def weight(self) -> float:
        """The factor w on the sum of zᵀ(∂f/∂x)z over the k probes."""


DivergenceMethod = AbstractDivergence | Literal["auto", "exact", "hutchinson"]


class ExactDivergence(AbstractDivergence):
    """The exact trace of the Jacobian, from d forward derivatives.

    If the witness has its divergence in closed form, as an `MLP` with up to two hidden layers
    does, the closed form is used instead, at less than the cost of one probe.

    Examples:
        >>> exact = nvgd.stein.ExactDivergence()
        >>> nvgd.stein.divergence(lambda x: 2.0 * x, jnp.zeros((3, 2)), exact).tolist()
        [4.0, 4.0, 4.0]
    """

    def probes(self, key, num_particles, dim, dtype, stream=0):
        """The d unit vectors, for every particle."""
        del key, stream
        return jnp.broadcast_to(jnp.eye(dim, dtype=dtype), (num_particles, dim, dim))

    @property
    def weight(self):
        """1: the trace is the plain sum."""
        return 1.0


class ClosedFormDivergence(AbstractDivergence):
    """The witness's own closed form; replaces `ExactDivergence` for witnesses that have one."""

    def probes(self, key, num_particles, dim, dtype, stream=0):
        """None."""
        del key, num_particles, dim, dtype, stream

    @property
    def weight(self):
        """1; not used, because there are no probes."""
        return 1.0


class HutchinsonDivergence(AbstractDivergence):
    """Hutchinson's unbiased estimate div f(x) ≈ (1/k) Σ zᵀ(∂f/∂x)z with E zzᵀ = I.

    With Rademacher probes (±1), the diagonal of the Jacobian adds no variance. The paper uses
    Gaussian probes, with which it does.

    Arguments:
        distribution: of the probes z, "rademacher" or "gaussian".
        num_probes: k, the number of probes per particle.

    Examples:
        >>> gaussian = nvgd.stein.HutchinsonDivergence("gaussian")  # the paper's
        >>> flow = nvgd.NVGD.paper(divergence=gaussian)
    """

    distribution: Literal["rademacher", "gaussian"] = "rademacher"
    num_probes: int = eqx.field(default=1, converter=plain)

    def __check_init__(self):
        check_choice("distribution", self.distribution, ("rademacher", "gaussian"))
        check_count("num_probes", self.num_probes)

    def probes(self, key, num_particles, dim, dtype, stream=0):
        """Random probes."""
        shape = (num_particles, self.num_probes, dim)
        if self.distribution == "gaussian":
            return jax.random.normal(jax.random.fold_in(key, stream), shape, dtype)
        return random_signs(key, shape, dtype, stream)

    @property
    def weight(self):
        """1/k, for the mean over probes."""
        return 1.0 / self.num_probes


def choose_divergence(
    choice: DivergenceMethod,
    dim: int,
    field: Field | None = None,
) -> AbstractDivergence:
    """Resolve `choice` to an estimator for this field.

    "auto" is exact in up to four dimensions, or if the field has its divergence in closed form, and
    Hutchinson's estimate otherwise.
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
    """f(x) and div f(x) per particle, from one forward pass with tangents.

    Arguments:
        field: f.
        particles: positions x.
        probes, weight: from an `AbstractDivergence`.
    """
    if probes is None:
        if not isinstance(field, AbstractBatchedWitness):
            raise InputError(
                f"{type(field).__name__} has no divergence in closed form: use "
                'divergence="exact" or "hutchinson".'
            )
        return field.values_and_divergences(particles)
    values, tangents = values_and_tangents(field, particles, probes)
    return values, weight * jnp.sum(probes * tangents, axis=(1, 2))


def values_and_tangents(
    field: Field, particles: Float[Array, "n d"], directions: Float[Array, "n k d"]
) -> tuple[Float[Array, "n d"], Float[Array, "n k d"]]:
    """f(x), and (∂f/∂x)z for the k directions z of each particle."""
    if isinstance(field, AbstractBatchedWitness):
        return field.values_and_tangents(particles, directions)

    def derivatives(x: Array, directions: Array) -> tuple[Array, Array]:
        along = jax.vmap(lambda z: jax.jvp(field, (x,), (z,)), out_axes=(None, 0))
        return along(directions)

    return jax.vmap(derivatives)(particles, directions)
