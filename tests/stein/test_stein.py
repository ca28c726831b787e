"""Stein operator, divergence estimators, and the optimum of the regularised discrepancy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd import directions, stein
from nvgd.densities import Gaussian
from nvgd.stein.divergences import (
    MOST_DIMENSIONS_FOR_EXACT_TRACE,
    ClosedFormDivergence,
    choose_divergence,
    values_and_divergences,
)


def correlated(dim: int) -> Gaussian:
    index = np.arange(dim)
    return Gaussian(index / dim, 0.6 ** np.abs(index[:, None] - index))


def scores_of(density, particles):
    return jax.vmap(jax.grad(density.log_density))(particles)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dim", [2, 6])
def test_stein_identity_holds_for_random_witnesses(dim, seed):
    q = correlated(dim)
    particles = q.sample(jax.random.key(seed), 20_000)
    witness = stein.MLP(dim, key=jax.random.key(100 + seed))
    terms = stein.stein_operator(witness, particles, scores_of(q, particles), "exact")
    standard_error = jnp.std(terms) / jnp.sqrt(len(terms))
    assert jnp.abs(jnp.mean(terms)) < 3.5 * standard_error
    assert jnp.std(terms) > 0.1


@pytest.mark.parametrize("distribution", ["gaussian", "rademacher"])
@pytest.mark.parametrize("num_probes", [1, 4])
def test_hutchinson_is_unbiased_for_the_exact_trace(distribution, num_probes):
    dim = 7
    witness = stein.MLP(dim, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (1, dim))
    exact = stein.divergence(witness, x, "exact")[0]
    jacobian = jax.jacfwd(witness)(x[0])
    assert jnp.allclose(exact, jnp.trace(jacobian), atol=1e-5)
    many = jnp.broadcast_to(x, (20_000, dim))
    estimator = stein.HutchinsonDivergence(distribution, num_probes)
    estimates = stein.divergence(witness, many, estimator, key=jax.random.key(2))
    standard_error = jnp.std(estimates) / jnp.sqrt(len(estimates))
    assert jnp.abs(jnp.mean(estimates) - exact) < 3.5 * standard_error
    # Var zᵀJz, with S the symmetric part of J: 2|S|² for Gaussian z, 2|S|² − 2|diag S|² for signs.
    symmetric = (jacobian + jacobian.T) / 2
    variance = 2 * jnp.sum(symmetric**2)
    if distribution == "rademacher":
        variance -= 2 * jnp.sum(jnp.diagonal(symmetric) ** 2)
    assert jnp.allclose(jnp.var(estimates), variance / num_probes, rtol=0.1)


def test_divergence_is_chosen_by_dimension():
    low = choose_divergence("auto", MOST_DIMENSIONS_FOR_EXACT_TRACE)
    high = choose_divergence("auto", MOST_DIMENSIONS_FOR_EXACT_TRACE + 1)
    assert isinstance(low, stein.ExactDivergence)
    assert isinstance(high, stein.HutchinsonDivergence)
    with pytest.raises(nvgd.InputError, match="key"):
        stein.divergence(jnp.tanh, jnp.zeros((3, 2)), "hutchinson")


def test_stacked_products_equal_automatic_derivatives():
    witness = stein.MLP(3, width=8, depth=3, key=jax.random.key(0))
    particles = jax.random.normal(jax.random.key(1), (11, 3))
    probes = jax.random.normal(jax.random.key(2), (11, 2, 3))
    fast = values_and_divergences(witness, particles, probes, 0.5)
    plain = values_and_divergences(lambda x: witness(x), particles, probes, 0.5)
    assert jnp.allclose(fast[0], plain[0], atol=1e-5)
    assert jnp.allclose(fast[1], plain[1], atol=1e-4)


@pytest.mark.parametrize("depth", [1, 2])
def test_closed_form_of_the_trace_equals_automatic_derivatives(depth):
    dim = 6
    witness = stein.MLP(dim, width=8, depth=depth, key=jax.random.key(0))
    witness = eqx.tree_at(lambda mlp: mlp.scale, witness, jnp.array(0.7))
    particles = jax.random.normal(jax.random.key(1), (11, dim))
    estimator = choose_divergence("auto", dim, witness)
    assert isinstance(estimator, ClosedFormDivergence)

    def total(witness, probes, field):
        values, divergences = values_and_divergences(field(witness), particles, probes, 1.0)
        return jnp.sum(values**2) + jnp.sum(divergences * particles[:, 0])

    units = stein.ExactDivergence().probes(jax.random.key(0), 11, dim, particles.dtype)
    closed = jax.value_and_grad(total)(witness, None, lambda f: f)
    plain = jax.value_and_grad(total)(witness, units, lambda f: lambda x: f(x))
    for ours, theirs in zip(jax.tree.leaves(closed), jax.tree.leaves(plain), strict=True):
        assert jnp.allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_three_hidden_layers_have_no_closed_form():
    witness = stein.MLP(6, width=8, depth=3, key=jax.random.key(0))
    assert isinstance(choose_divergence("auto", 6, witness), stein.HutchinsonDivergence)
    with pytest.raises(nvgd.InputError, match="closed form"):
        values_and_divergences(jnp.tanh, jnp.zeros((3, 2)), None, 1.0)


def affine_optimum(p: Gaussian, q: Gaussian):
    """f* = ∇log p − ∇log q = −P⁻¹(x − μₚ) + Q⁻¹(x − μ_q)."""
    p_inverse, q_inverse = jnp.linalg.inv(p.covariance), jnp.linalg.inv(q.covariance)
    return lambda x: q_inverse @ (x - q.mean) - p_inverse @ (x - p.mean)


def test_affine_field_is_the_optimum_for_gaussians():
    p, q = correlated(3), Gaussian([0.5, 0.0, -0.5], [2.0, 1.0, 0.5])
    particles = q.sample(jax.random.key(0), 50_000)
    scores = scores_of(p, particles)
    best = affine_optimum(p, q)

    def value(field):
        return stein.regularised_stein_discrepancy(field, particles, scores, "exact")

    norm = jnp.mean(jnp.sum(jax.vmap(best)(particles) ** 2, axis=-1))
    assert jnp.allclose(value(best), norm / 2, rtol=0.02)
    assert jnp.allclose(stein.stein_discrepancy(best, particles, scores, "exact"), norm, rtol=0.02)
    for other in (lambda x: 0.9 * best(x), lambda x: 1.1 * best(x), lambda x: best(x) + 0.1):
        assert value(other) < value(best)


class AffineWitness(eqx.Module):
    matrix: jax.Array
    offset: jax.Array

    def __call__(self, x):
        return self.matrix @ x + self.offset


def test_training_finds_the_affine_optimum():
    p, q = correlated(2), Gaussian([0.5, -0.5], [1.5, 0.7])
    particles = q.sample(jax.random.key(0), 4000)
    scores = scores_of(p, particles)
    direction = directions.Neural(
        witness=AffineWitness(jnp.zeros((2, 2)), jnp.zeros(2)),
        learning_rate=3e-2,
        max_inner_steps=2000,
        patience=200,
    )
    state = direction.init(particles, key=jax.random.key(1))
    state, diagnostics = eqx.filter_jit(direction.train)(
        particles, scores, state, key=jax.random.key(2)
    )
    best = affine_optimum(p, q)
    error = jax.vmap(state.witness)(particles) - jax.vmap(best)(particles)
    size = jax.vmap(best)(particles)
    assert jnp.sum(error**2) < 0.05**2 * jnp.sum(size**2) * 4
    optimum = 0.5 * jnp.mean(jnp.sum(size**2, axis=-1))
    assert jnp.allclose(diagnostics["stein_discrepancy"], optimum, rtol=0.15)
