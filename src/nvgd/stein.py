"""The Stein operator, its divergence term, and the regularised Stein discrepancy.

For a vector field f and particles x ~ q (paper, eqs. 3 and 4),

    SD(q‖p; f)  = E_q[ f(x)·∇log p(x) + div f(x) ]
    RSD(q‖p; f) = SD(q‖p; f) − ½ E_q |f(x)|²

RSD is largest at f* = ∇log p − ∇log q, the direction in which KL(q‖p) falls fastest, and its
value there is ½ E_q|f*|². Only samples of q are needed, never its density.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd.errors import InputError, check_choice, check_count, plain
from nvgd.witnesses import AbstractBatchedWitness

Field = Callable[[Float[Array, " d"]], Float[Array, " d"]]

# Up to this many dimensions the exact trace costs less than the probes' noise does.
EXACT_UP_TO_DIMENSION = 4


class AbstractDivergence(eqx.Module):
    """How div f = tr ∂f/∂x is found: along which probes z, with which weight on each zᵀ(∂f/∂x)z.

    Probes are drawn apart from their use, so that a caller can hold them fixed while f changes.
    """

    @abstractmethod
    def probes(
        self, key: PRNGKeyArray, num_particles: int, dim: int, dtype: jnp.dtype
    ) -> Float[Array, "n k d"]:
        """k directions for every particle."""

    @property
    @abstractmethod
    def weight(self) -> float:
        """The factor on the sum of zᵀ(∂f/∂x)z over the k directions."""


class ExactDivergence(AbstractDivergence):
    """The trace of the Jacobian, coordinate by coordinate: d forward derivatives, no noise."""

    def probes(self, key, num_particles, dim, dtype):
        """The d unit vectors."""
        del key
        return jnp.broadcast_to(jnp.eye(dim, dtype=dtype), (num_particles, dim, dim))

    @property
    def weight(self):
        """A trace is a plain sum."""
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

    def probes(self, key, num_particles, dim, dtype):
        """Fresh random directions."""
        shape = (num_particles, self.num_probes, dim)
        if self.distribution == "gaussian":
            return jax.random.normal(key, shape, dtype)
        return jax.random.rademacher(key, shape, dtype)

    @property
    def weight(self):
        """The mean over probes."""
        return 1.0 / self.num_probes


def choose_divergence(
    choice: AbstractDivergence | Literal["auto", "exact", "hutchinson"], dim: int
) -> AbstractDivergence:
    """The estimator meant by `choice`; "auto" is exact in low dimension and Hutchinson above."""
    if isinstance(choice, AbstractDivergence):
        return choice
    check_choice("divergence", choice, ("auto", "exact", "hutchinson"))
    is_low = dim <= EXACT_UP_TO_DIMENSION
    if choice == "exact" or (choice == "auto" and is_low):
        return ExactDivergence()
    return HutchinsonDivergence()


def values_and_divergences(
    field: Field,
    particles: Float[Array, "n d"],
    probes: Float[Array, "n k d"],
    weight: float,
) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """f(x) and div f(x) at every particle, from one forward pass with its tangents."""

    if isinstance(field, AbstractBatchedWitness):
        values, tangents = field.values_and_tangents(particles, probes)
    else:

        def derivatives(x: Array, directions: Array) -> tuple[Array, Array]:
            along = jax.vmap(lambda z: jax.jvp(field, (x,), (z,)), out_axes=(None, 0))
            return along(directions)

        values, tangents = jax.vmap(derivatives)(particles, probes)
    return values, weight * jnp.sum(probes * tangents, axis=(1, 2))


def divergence(
    field: Field,
    particles: Float[Array, "n d"],
    method: AbstractDivergence | Literal["auto", "exact", "hutchinson"] = "auto",
    *,
    key: PRNGKeyArray | None = None,
) -> Float[Array, " n"]:
    """div f at every particle; `key` is needed for random probes."""
    return _evaluate(field, particles, method, key)[1]


def stein_operator(
    field: Field,
    particles: Float[Array, "n d"],
    scores: Float[Array, "n d"],
    method: AbstractDivergence | Literal["auto", "exact", "hutchinson"] = "auto",
    *,
    key: PRNGKeyArray | None = None,
) -> Float[Array, " n"]:
    """(A_p f)(x) = f(x)·∇log p(x) + div f(x) at every particle; its mean under p is zero."""
    _check_scores(particles, scores)
    values, divergences = _evaluate(field, particles, method, key)
    return jnp.sum(values * scores, axis=-1) + divergences


def stein_discrepancy(
    field: Field,
    particles: Float[Array, "n d"],
    scores: Float[Array, "n d"],
    method: AbstractDivergence | Literal["auto", "exact", "hutchinson"] = "auto",
    *,
    key: PRNGKeyArray | None = None,
) -> Float[Array, ""]:
    """Monte Carlo estimate of SD(q‖p; f) (eq. 3) from particles of q."""
    return jnp.mean(stein_operator(field, particles, scores, method, key=key))


def regularised_stein_discrepancy(
    field: Field,
    particles: Float[Array, "n d"],
    scores: Float[Array, "n d"],
    method: AbstractDivergence | Literal["auto", "exact", "hutchinson"] = "auto",
    *,
    key: PRNGKeyArray | None = None,
) -> Float[Array, ""]:
    """Monte Carlo estimate of RSD(q‖p; f) (eq. 4), the objective that a witness maximises."""
    _check_scores(particles, scores)
    values, divergences = _evaluate(field, particles, method, key)
    return jnp.mean(regularised_terms(values, divergences, scores))


def regularised_terms(
    values: Float[Array, "n d"], divergences: Float[Array, " n"], scores: Float[Array, "n d"]
) -> Float[Array, " n"]:
    """f·∇log p + div f − ½|f|² a particle, the summands of the estimate of RSD."""
    return jnp.sum(values * (scores - 0.5 * values), axis=-1) + divergences


def _evaluate(
    field: Field,
    particles: Array,
    method: AbstractDivergence | Literal["auto", "exact", "hutchinson"],
    key: PRNGKeyArray | None,
) -> tuple[Array, Array]:
    num_particles, dim = _checked_shape(field, particles)
    estimator = choose_divergence(method, dim)
    if key is None:
        if not isinstance(estimator, ExactDivergence):
            raise InputError(
                f"{type(estimator).__name__} draws random probes: pass key=jax.random.key(...), "
                'or method="exact".'
            )
        key = jax.random.key(0)
    probes = estimator.probes(key, num_particles, dim, particles.dtype)
    return values_and_divergences(field, particles, probes, estimator.weight)


def _checked_shape(field: Field, particles: Array) -> tuple[int, int]:
    if jnp.ndim(particles) != 2 or not jnp.issubdtype(particles.dtype, jnp.floating):
        raise InputError(
            "particles must be a floating-point array of shape (n, d), got shape "
            f"{jnp.shape(particles)}."
        )
    num_particles, dim = particles.shape
    output = eqx.filter_eval_shape(field, jax.ShapeDtypeStruct((dim,), particles.dtype))
    if getattr(output, "shape", None) != (dim,):
        raise InputError(
            f"the field must map a position of shape ({dim},) to a vector of the same shape, got "
            f"{getattr(output, 'shape', type(output).__name__)}."
        )
    return num_particles, dim


def _check_scores(particles: Array, scores: Array) -> None:
    if jnp.shape(particles) != jnp.shape(scores):
        raise InputError(
            f"scores must have the particles' shape {jnp.shape(particles)}, got "
            f"{jnp.shape(scores)}."
        )
