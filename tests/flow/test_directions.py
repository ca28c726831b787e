"""Each direction against an independent version of itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from blackjax.vi import svgd

import nvgd
from nvgd import directions, stein
from nvgd._support import random_bits
from nvgd.densities import Funnel
from nvgd.flow.directions.residual import affine_discrepancy, normal_scores
from nvgd.stein.kernels import median_bandwidth


def numpy_fitted(particles, scores, bandwidth, kind):
    """φ by two plain loops and the kernels' hand-written gradients."""
    n = len(particles)
    field = np.zeros_like(particles)
    for i in range(n):
        for j in range(n):
            difference = particles[j] - particles[i]
            ratio = difference @ difference / bandwidth**2
            if kind == "rbf":
                value = np.exp(-ratio / 2)
                gradient = -value * difference / bandwidth**2
            else:
                value = (1 + ratio) ** -0.5
                gradient = -((1 + ratio) ** -1.5) * difference / bandwidth**2
            field[i] += (value * scores[j] + gradient) / n
    return field


@pytest.fixture
def funnel_particles():
    particles = jax.random.normal(jax.random.key(0), (17, 3))
    scores = jax.vmap(jax.grad(Funnel(3).log_density))(particles)
    return particles, scores


def fitted(direction, particles, scores):
    state = direction.init(particles, key=jax.random.key(0))
    fit = direction.fit(particles, scores, state, view=None, key=jax.random.key(0))
    return fit.velocities, fit.field, fit.diagnostics


@pytest.mark.parametrize("kind", ["rbf", "imq"])
@pytest.mark.parametrize("bandwidth", ["median", 0.7])
def test_svgd_equals_a_plain_double_loop(funnel_particles, kind, bandwidth):
    particles, scores = funnel_particles
    kernel = {"rbf": stein.RBF, "imq": stein.IMQ}[kind](bandwidth)
    field, _, _ = fitted(directions.Kernel(kernel), particles, scores)
    x = np.asarray(particles, np.float64)
    if bandwidth == "median":
        distances = [np.sum((a - b) ** 2) for i, a in enumerate(x) for b in x[:i]]
        bandwidth = np.sqrt(np.median(distances) / (2 * np.log(len(x))))
        assert np.allclose(median_bandwidth(particles), bandwidth, rtol=1e-5)
    expected = numpy_fitted(x, np.asarray(scores, np.float64), bandwidth, kind)
    assert np.allclose(field, expected, rtol=1e-4, atol=1e-5)


def test_svgd_with_the_median_heuristic_equals_blackjax():
    density, step_size = Funnel(3), 0.1
    # An odd number of pairs: the median of squares is then the square of the median.
    particles = jax.random.normal(jax.random.key(1), (23, 3))
    transformation = optax.sgd(step_size)
    theirs = svgd.init(particles, {"length_scale": 0.0}, transformation)
    kernel = svgd.build_kernel(transformation)
    flow, target = nvgd.SVGD(step_size), nvgd.Target(density.log_density, dim=3)
    ours = flow.init(target, particles, key=jax.random.key(0))
    for _ in range(5):
        theirs = svgd.update_median_heuristic(theirs)
        theirs = kernel(theirs, jax.grad(density.log_density), svgd.rbf_kernel)
        ours, _ = flow.step(target, ours, key=jax.random.key(0))
    assert jnp.max(jnp.abs(ours.particles - particles)) > 0.1
    assert np.allclose(ours.particles, np.asarray(theirs.particles), atol=1e-4)


def test_rescaled_svgd_maximises_the_regularised_discrepancy(funnel_particles):
    particles, scores = funnel_particles
    kernel = stein.RBF(0.9)
    plain, _, _ = fitted(directions.Kernel(kernel), particles, scores)
    rescaled, _, _ = fitted(directions.Kernel(kernel, rescale=True), particles, scores)

    def field(x):
        difference = particles - x
        values = jnp.exp(-0.5 * jnp.sum(difference**2, axis=-1) / 0.9**2)
        return jnp.mean(values[:, None] * (scores - difference / 0.9**2), axis=0)

    assert jnp.allclose(jax.vmap(field)(particles), plain, atol=1e-5)
    witness = directions.Kernel(kernel).witness(particles, scores)
    assert jnp.allclose(jax.vmap(witness)(particles + 1.0), jax.vmap(field)(particles + 1.0))

    def value(factor):
        scaled = lambda x: factor * field(x)  # noqa: E731
        return stein.regularised_stein_discrepancy(scaled, particles, scores, "exact")

    factor = jnp.vdot(rescaled, plain) / jnp.vdot(plain, plain)
    assert jnp.allclose(rescaled, factor * plain, rtol=1e-4)
    assert jnp.abs(jax.grad(value)(factor)) < 1e-3 * jnp.abs(jax.grad(value)(0.0))


def test_svgd_discrepancy_is_that_of_the_leave_one_out_field(funnel_particles):
    particles, scores = funnel_particles
    _, _, diagnostics = fitted(directions.Kernel(stein.RBF(0.9)), particles, scores)
    values, overlaps = [], []
    for i in range(len(particles)):
        others, other_scores = (np.delete(a, i, axis=0) for a in (particles, scores))

        def field(x, others=others, other_scores=other_scores):
            difference = others - x
            kernel = jnp.exp(-0.5 * jnp.sum(difference**2, axis=-1) / 0.9**2)
            return jnp.mean(kernel[:, None] * (other_scores - difference / 0.9**2), axis=0)

        x = particles[i]
        values.append(field(x))
        overlaps.append(field(x) @ scores[i] + jnp.trace(jax.jacfwd(field)(x)))
    overlap = np.mean(overlaps)
    expected = 0.5 * overlap * abs(overlap) / np.mean(np.sum(np.array(values) ** 2, axis=1))
    assert np.allclose(diagnostics["stein_discrepancy"], expected, rtol=1e-3)


def test_svgd_does_not_lose_digits_far_from_the_origin():
    particles = jax.random.normal(jax.random.key(0), (40, 2))
    near, _, _ = fitted(directions.Kernel(), particles, -particles)
    far, _, _ = fitted(directions.Kernel(), particles + 1024.0, -particles)
    assert jnp.allclose(near, far, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("num_apart", [0, 5])
def test_svgd_bears_particles_that_coincide(num_apart):
    particles = (
        jnp.full((50, 2), 1.3).at[:num_apart].add(jnp.arange(2.0 * num_apart).reshape(-1, 2))
    )
    field, _, _ = fitted(directions.Kernel(), particles, -particles)
    assert jnp.max(jnp.abs(field)) < 10


class Constant(eqx.Module):
    """A witness whose discrepancy rises with its value up to 1 on scores of one."""

    value: jax.Array

    def __call__(self, x):
        return jnp.full_like(x, 1.0) * self.value


def train(direction, scores_sign=1.0, num_particles=30):
    particles = jnp.zeros((num_particles, 2))
    scores = scores_sign * jnp.ones((num_particles, 2))
    state = direction.init(particles, key=jax.random.key(0))
    return direction.train(particles, scores, state, key=jax.random.key(1))


def test_training_stops_early_and_best_weights_come_back():
    # Steps of 0.35 whatever the gradient: past the optimum at 1 and on.
    always_up = optax.GradientTransformation(
        lambda params: optax.EmptyState(),
        lambda updates, state, params=None: (
            jax.tree.map(lambda u: jnp.full_like(u, 0.35), updates),
            state,
        ),
    )
    settings = {
        "witness": Constant(jnp.array(0.0)),
        "witness_optimizer": always_up,
        "max_inner_steps": 40,
        "patience": 4,
    }
    best, diagnostics = train(directions.Neural(**settings))
    last, last_diagnostics = train(directions.Neural(**settings, restore_best=False))
    # 0.35, 0.70, 1.05 (the best), then four steps without improvement.
    assert diagnostics["inner_steps"] == last_diagnostics["inner_steps"] == 7
    assert jnp.allclose(best.arrays.value, 1.05)
    assert jnp.allclose(last.arrays.value, 7 * 0.35)
    assert jnp.allclose(diagnostics["stein_discrepancy"], 2 * (1.05 - 0.5 * 1.05**2))
    assert last_diagnostics["stein_discrepancy"] < diagnostics["stein_discrepancy"]


def test_training_runs_to_the_limit_while_it_improves():
    direction = directions.Neural(
        witness=Constant(jnp.array(0.0)), learning_rate=1e-3, max_inner_steps=12, patience=3
    )
    state, diagnostics = train(direction)
    assert diagnostics["inner_steps"] == 12
    assert state.arrays.value > 0


def test_weights_that_run_away_are_not_kept():
    direction = directions.Neural(
        witness=Constant(jnp.array(0.5)),
        witness_optimizer=optax.sgd(1e38, momentum=1e38),
        patience=2,
    )
    state, diagnostics = train(direction)
    assert jnp.allclose(state.arrays.value, 0.5)
    assert jnp.isfinite(diagnostics["stein_discrepancy"])
    assert all(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(state.optimizer))


def test_training_uses_only_training_particles():
    """Scores of the validation part must move the verdict, not the weights."""
    particles = jax.random.normal(jax.random.key(3), (12, 2))
    direction = directions.Neural(max_inner_steps=1, patience=5, restore_best=False)
    state = direction.init(particles, key=jax.random.key(0))
    key = jax.random.key(1)
    scores = -particles
    train = eqx.filter_jit(direction.train)
    base, _ = train(particles, scores, state, key=key)
    changed = 0
    for i in range(len(particles)):
        other, _ = train(particles, scores.at[i].add(3.0), state, key=key)
        same = jax.tree.map(jnp.array_equal, base.arrays, other.arrays)
        changed += not all(jax.tree.leaves(same))
    assert changed == 8


def test_buffers_of_a_witness_are_kept_but_not_trained():
    class WithBuffer(eqx.Module):
        weight: jax.Array
        count: jax.Array

        def __call__(self, x):
            return self.weight * x * self.count

    direction = directions.Neural(witness=WithBuffer(jnp.ones(2), jnp.array(2)))
    state, _ = train(direction)
    assert state.arrays.count == 2


def test_langevin_velocity_is_the_score(funnel_particles):
    particles, scores = funnel_particles
    direction = directions.Langevin()
    velocities, _, diagnostics = fitted(direction, particles, scores)
    assert jnp.array_equal(velocities, scores)
    assert diagnostics == {}


def test_normal_scores_are_standard_whatever_the_particles():
    particles = jax.random.cauchy(jax.random.key(0), (101, 3))
    scores = normal_scores(particles)
    assert np.allclose(jnp.mean(scores, axis=0), 0.0, atol=1e-5)
    assert np.allclose(jnp.var(scores, axis=0), 1.0, atol=1e-4)
    assert jnp.array_equal(jnp.argsort(scores, axis=0), jnp.argsort(particles, axis=0))


def test_the_residual_direction_starts_as_score_plus_normal_repulsion():
    particles = jax.random.normal(jax.random.key(0), (40, 2))
    direction = nvgd.NVGD().direction
    state = direction.init(particles, key=jax.random.key(1))
    fit = direction.fit(particles, -particles, state, view=None, key=jax.random.key(2))
    assert jnp.allclose(fit.velocities, normal_scores(particles) - particles, atol=1e-5)
    assert fit.diagnostics["network_weight"] == 0


def test_the_residual_network_learns_what_a_normal_repulsion_misses():
    """Two clusters: −∇log q points away from each one's centre, the normal part does not."""
    halves = jnp.where(jnp.arange(400) % 2, 1.0, -1.0)
    particles = 0.3 * jax.random.normal(jax.random.key(0), (400, 1)) + halves[:, None]
    exact = -jax.vmap(
        jax.grad(lambda x: jnp.logaddexp(-((x - 1) ** 2) / 0.18, -((x + 1) ** 2) / 0.18))
    )(particles[:, 0])
    direction = nvgd.NVGD().direction
    state = direction.init(particles, key=jax.random.key(1))
    step = eqx.filter_jit(direction.fit)
    fit = None
    for i in range(150):
        fit = step(particles, jnp.zeros_like(particles), state, view=None, key=jax.random.key(i))
        state = fit.state
    before = jnp.mean((normal_scores(particles)[:, 0] - exact) ** 2)
    assert fit is not None
    assert jnp.mean((fit.velocities[:, 0] - exact) ** 2) < 0.3 * before
    assert fit.diagnostics["network_weight"] > 0.8
    assert callable(state.witness)


def test_the_discrepancy_of_the_default_is_held_out():
    """About zero for draws of the target, however few; its true value where they are off."""
    few = jax.random.normal(jax.random.key(0), (500, 12, 3))
    on_target = jax.vmap(lambda x: affine_discrepancy(x, -x))(few)
    assert float(jnp.mean(on_target)) < 0.1
    # Half the mean squared velocity, which was recorded before, is far above.
    many = jax.random.normal(jax.random.key(1), (4000, 3))
    shifted = many + jnp.array([1.0, 0.0, 0.0])
    assert np.isclose(affine_discrepancy(shifted, -shifted), 0.5, atol=0.08)
    wide = 2.0 * many
    # f* = (1/4 − 1)x per coordinate: ½E|f*|² = ½ · 3 · (3/4)² · 4.
    assert np.isclose(affine_discrepancy(wide, -wide), 3.375, rtol=0.08)


def test_the_split_and_the_probes_of_one_training_use_other_bits(monkeypatch):
    streams = []
    words = random_bits.random_words
    monkeypatch.setattr(
        random_bits,
        "random_words",
        lambda key, number, stream=0: streams.append(stream) or words(key, number, stream),
    )
    particles = jax.random.normal(jax.random.key(0), (12, 6))
    direction = directions.Neural(divergence="hutchinson", max_inner_steps=2)
    state = direction.init(particles, key=jax.random.key(0))
    direction.train(particles, -particles, state, key=jax.random.key(1))
    split, validation = streams[:2]
    assert split != validation


def test_the_residual_direction_knows_no_other_regulariser():
    with pytest.raises(nvgd.InputError, match=r"use NVGD.paper\(regulariser"):
        nvgd.NVGD(regulariser=stein.PowerNorm(3))
