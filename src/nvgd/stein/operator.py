"""The Stein operator, its divergence term, and the regularised Stein discrepancy.

For a vector field f and particles x ~ q (paper, eqs. 3 and 4),

    SD(q‖p; f)  = E_q[ f(x)·∇log p(x) + div f(x) ]
    RSD(q‖p; f) = SD(q‖p; f) − ½ E_q |f(x)|²

RSD is largest at f* = ∇log p − ∇log q, the direction in which KL(q‖p) falls fastest. Its value at
f* is ½ E_q|f*|². Both need only samples of q, never its density.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd._support.errors import InputError
from nvgd.stein.divergences import (
    ClosedFormDivergence,
    DivergenceMethod,
    ExactDivergence,
    Field,
    choose_divergence,
    values_and_divergences,
)


def divergence(
    field: Field,
    particles: Float[Array, "n d"],
    method: DivergenceMethod = "auto",
    *,
    key: PRNGKeyArray | None = None,
) -> Float[Array, " n"]:
    """The divergence div f at each particle.

    Arguments:
        field: f, a function from a position (d,) to a vector (d,).
        particles: positions at which to evaluate.
        method: how div f is evaluated: "exact", "hutchinson", "auto" or an estimator.
        key: random key, needed only for random probes.

    Examples:
        >>> nvgd.stein.divergence(lambda x: 2.0 * x, jnp.zeros((3, 2))).tolist()
        [4.0, 4.0, 4.0]
    """
    return _evaluate(field, particles, method, key)[1]


def stein_operator(
    field: Field,
    particles: Float[Array, "n d"],
    scores: Float[Array, "n d"],
    method: DivergenceMethod = "auto",
    *,
    key: PRNGKeyArray | None = None,
) -> Float[Array, " n"]:
    """The Stein operator (A_p f)(x) = f(x)·∇log p(x) + div f(x) at each particle.

    Its mean under p is zero.

    Arguments:
        field: f, a function from a position (d,) to a vector (d,).
        particles: positions at which to evaluate.
        scores: ∇log p at the particles.
        method: how div f is evaluated: "exact", "hutchinson", "auto" or an estimator.
        key: random key, needed only for random probes.

    Examples:
        >>> x = jax.random.normal(jax.random.key(0), (1000, 2))
        >>> values = nvgd.stein.stein_operator(jnp.sin, x, -x)
        >>> values.shape
        (1000,)
    """
    _check_scores(particles, scores)
    values, divergences = _evaluate(field, particles, method, key)
    return jnp.sum(values * scores, axis=-1) + divergences


def stein_discrepancy(
    field: Field,
    particles: Float[Array, "n d"],
    scores: Float[Array, "n d"],
    method: DivergenceMethod = "auto",
    *,
    key: PRNGKeyArray | None = None,
) -> Float[Array, ""]:
    """Monte Carlo estimate of SD(q‖p; f) (eq. 3) from particles of q.

    Arguments: as for `stein_operator`.

    Examples:
        >>> x = jax.random.normal(jax.random.key(0), (10_000, 2))
        >>> bool(abs(nvgd.stein.stein_discrepancy(jnp.sin, x, -x)) < 0.1)  # draws of the target
        True
    """
    return jnp.mean(stein_operator(field, particles, scores, method, key=key))


def regularised_stein_discrepancy(
    field: Field,
    particles: Float[Array, "n d"],
    scores: Float[Array, "n d"],
    method: DivergenceMethod = "auto",
    *,
    key: PRNGKeyArray | None = None,
) -> Float[Array, ""]:
    """Monte Carlo estimate of RSD(q‖p; f) (eq. 4), the training objective of a witness.

    Arguments: as for `stein_operator`.

    Examples:
        >>> x = 2.0 * jax.random.normal(jax.random.key(0), (10_000, 1))
        >>> optimum = lambda x: -x + x / 4  # ∇log p − ∇log q for p = N(0, 1), q = N(0, 4)
        >>> value = nvgd.stein.regularised_stein_discrepancy(optimum, x, -x)
        >>> bool(abs(value - 9 / 8) < 0.1)  # ½E|f|²
        True
    """
    _check_scores(particles, scores)
    values, divergences = _evaluate(field, particles, method, key)
    return jnp.mean(regularised_terms(values, divergences, scores))


def regularised_terms(
    values: Float[Array, "n d"], divergences: Float[Array, " n"], scores: Float[Array, "n d"]
) -> Float[Array, " n"]:
    """f·∇log p + div f − ½|f|² per particle; the mean is the estimate of RSD."""
    return jnp.sum(values * (scores - 0.5 * values), axis=-1) + divergences


def _evaluate(
    field: Field,
    particles: Array,
    method: DivergenceMethod,
    key: PRNGKeyArray | None,
) -> tuple[Array, Array]:
    num_particles, dim = _checked_shape(field, particles)
    estimator = choose_divergence(method, dim, field)
    if key is None:
        if not isinstance(estimator, ExactDivergence | ClosedFormDivergence):
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
