"""The output layer in closed form against automatic derivatives and known optima."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import nvgd
from nvgd.densities import Gaussian
from nvgd.output_layer import moments, solved
from nvgd.regularisers import PowerNorm
from nvgd.witnesses import AbstractLinearOutputWitness


class Affine(AbstractLinearOutputWitness):
    """f(x) = B (x, 1): linear in all that can be trained."""

    matrix: jax.Array

    @property
    def has_closed_divergence(self):
        return True

    def __call__(self, x):
        return self.matrix @ jnp.append(x, 1.0)

    def values_and_tangents(self, positions, directions):
        return jax.vmap(self)(positions), directions @ self.matrix[:, :-1].T

    def values_and_divergences(self, positions):
        trace = jnp.trace(self.matrix[:, :-1])
        return jax.vmap(self)(positions), jnp.full(len(positions), trace)

    def features(self, positions):
        return jnp.concatenate([positions, jnp.ones((len(positions), 1))], axis=1)

    def mean_feature_jacobian(self, positions):
        dim = positions.shape[1]
        return jnp.concatenate([jnp.eye(dim), jnp.zeros((1, dim))])

    @property
    def output(self):
        return self.matrix

    def with_output(self, output):
        return Affine(output)


def parts():
    q = Gaussian([0.5, -0.5], [1.5, 0.7])
    particles = q.sample(jax.random.key(0), 600)
    p = Gaussian([0.0, 1.0], [[1.0, 0.4], [0.4, 0.8]])
    scores = jax.vmap(jax.grad(p.log_density))(particles)
    return (particles[:400], scores[:400]), (particles[400:], scores[400:])


def test_an_affine_witness_is_solved_to_its_exact_optimum():
    """Where the discrepancy's gradient vanishes, and by Gaussian theory near ∇log p − ∇log q."""
    train, validation = parts()
    best, value = solved(Affine(jnp.zeros((2, 3))), train, validation, ridges=(1e-7,))

    def discrepancy(witness, part):
        return nvgd.regularised_stein_discrepancy(witness, *part)

    gradient = eqx.filter_grad(discrepancy)(best, train).matrix
    start = eqx.filter_grad(discrepancy)(Affine(jnp.zeros((2, 3))), train).matrix
    assert jnp.max(jnp.abs(gradient)) < 1e-4 * jnp.max(jnp.abs(start))
    assert jnp.allclose(value, discrepancy(best, validation), rtol=1e-4)
    inverse = jnp.linalg.inv(jnp.array([[1.0, 0.4], [0.4, 0.8]]))
    exact = jnp.diag(1 / jnp.array([1.5, 0.7])) - inverse
    assert jnp.allclose(best.output[:, :2], exact, atol=0.2)


def test_iterations_with_a_ridge_come_to_the_same_optimum():
    train, validation = parts()
    target = solved(Affine(jnp.zeros((2, 3))), train, validation, ridges=(1e-7,))[0].output
    witness = Affine(jnp.zeros((2, 3)))
    step = eqx.filter_jit(lambda witness: solved(witness, train, train, ridges=(1.0,))[0])
    for _ in range(60):
        witness = step(witness)
    # Nearer than this the discrepancies of two candidates are equal in single precision.
    assert jnp.allclose(witness.output, target, atol=1e-2)


@pytest.mark.parametrize("depth", [1, 2])
def test_moments_give_the_discrepancy_of_any_output_layer(depth):
    train, _ = parts()
    witness = nvgd.MLP(2, width=8, depth=depth, key=jax.random.key(1))
    other = witness.with_output(jax.random.normal(jax.random.key(2), (2, 9)))
    ours = witness.features(train[0]) @ witness.output.T
    assert jnp.allclose(jax.vmap(witness)(train[0]), ours, atol=1e-5)
    for one in (witness, other):
        expected = nvgd.regularised_stein_discrepancy(lambda x, f=one: f(x), *train, "exact")
        assert jnp.allclose(moments(witness, *train).discrepancy(one.output), expected, rtol=1e-3)


def test_the_layer_stays_where_no_candidate_does_better_on_held_out_particles():
    train, validation = parts()
    best, _ = solved(Affine(jnp.zeros((2, 3))), validation, validation, ridges=(1e-7,))
    again, _ = solved(best, train, validation)
    assert jnp.array_equal(again.output, best.output)


def test_training_with_a_solved_output_layer():
    train, _ = parts()
    direction = nvgd.NeuralDirection(output_layer="solved", max_inner_steps=3, learning_rate=1e-3)
    state = direction.init(train[0], key=jax.random.key(0))
    step = eqx.filter_jit(direction.train)
    values = []
    for i in range(40):
        state, diagnostics = step(*train, state, key=jax.random.key(i))
        values.append(diagnostics["stein_discrepancy"])
    optimum = solved(Affine(jnp.zeros((2, 3))), train, train, ridges=(1e-7,))[1]
    assert jnp.mean(jnp.array(values[-10:])) > 0.85 * optimum


@pytest.mark.parametrize("witness", [nvgd.MLP(2, depth=3, key=jax.random.key(0)), None])
def test_witnesses_that_cannot_be_solved_are_refused(witness):
    witness = eqx.nn.Linear(2, 2, key=jax.random.key(0)) if witness is None else witness
    direction = nvgd.NeuralDirection(witness=witness, output_layer="solved")
    with pytest.raises(nvgd.InputError, match="two hidden layers"):
        direction.init(jnp.zeros((5, 2)), key=jax.random.key(0))
    with pytest.raises(nvgd.InputError, match="leave regulariser out"):
        nvgd.NeuralDirection(output_layer="solved", regulariser=PowerNorm(3.0))
