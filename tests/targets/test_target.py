"""Targets: pytrees, names, constraints, minibatches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd.targets.epochs import EpochShuffle

ROWS = {
    "x": np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32),
    "y": np.random.default_rng(1).normal(size=50).astype(np.float32),
}


def log_prior(position):
    return -0.5 * jnp.sum(position["slope"] ** 2) - 0.5 * position["log_scale"] ** 2


def log_likelihood(position, datum):
    error = datum["y"] - datum["x"] @ position["slope"]
    return -0.5 * error**2 * jnp.exp(-2 * position["log_scale"]) - position["log_scale"]


def regression(batch_size=None):
    return nvgd.Target(
        log_prior,
        example={"slope": jnp.zeros(3), "log_scale": 0.0},
        log_likelihood=log_likelihood,
        data=ROWS,
        batch_size=batch_size,
        constrain=lambda p: {"slope": p["slope"], "scale": jnp.exp(p["log_scale"])},
    )


def test_pytree_log_density_equals_the_flat_one():
    target = regression()
    position = {"log_scale": jnp.array(0.3), "slope": jnp.array([0.1, -0.4, 0.7])}
    flat = jnp.array([0.3, 0.1, -0.4, 0.7])
    error = ROWS["y"] - ROWS["x"] @ np.array(position["slope"])
    expected = float(log_prior(position)) + np.sum(-0.5 * error**2 * np.exp(-0.6) - 0.3)
    assert target.dim == 4
    assert np.isclose(target.log_density(flat), expected, rtol=1e-5)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, target.structure(flat), position))


def test_minibatch_score_is_unbiased_with_the_librarys_scaling():
    """Averaged over all batches of an epoch, the estimate is exact."""
    target = regression(batch_size=10)
    particles = jax.random.normal(jax.random.key(0), (6, 4))
    _, full = target.log_densities_and_scores(particles)
    rows = EpochShuffle(50, 10, seed=3).rows(0, 5)
    batches = [
        target.log_densities_and_scores(particles, target.batch(jnp.asarray(r)))[1] for r in rows
    ]
    assert np.allclose(np.mean(batches, axis=0), full, rtol=1e-4, atol=1e-3)
    assert not np.allclose(batches[0], full, rtol=0.05)


def test_an_epoch_shows_every_row_once_in_a_new_order():
    shuffle = EpochShuffle(num_rows=23, batch_size=4, seed=1)
    assert shuffle.steps_per_epoch == 5
    first, second = shuffle.rows(0, 5), shuffle.rows(5, 5)
    for epoch in (first, second):
        assert len(np.unique(epoch)) == 20
    assert not np.array_equal(first, second)
    # A function of seed and step alone: a run that starts in the middle sees the same rows.
    assert np.array_equal(EpochShuffle(23, 4, seed=1).rows(7, 2), second[2:4])
    assert not np.array_equal(EpochShuffle(23, 4, seed=2).rows(0, 5), first)


def test_draws_carry_names_and_constraints():
    posterior = nvgd.sample(
        regression(batch_size=10), nvgd.ULA(1e-4), num_particles=8, num_steps=4, progress=False
    )
    draws = posterior.draws
    assert {name: values.shape for name, values in draws.items()} == {
        "scale": (1, 8),
        "slope": (1, 8, 3),
    }
    assert jnp.all(draws["scale"] > 0)
    assert jnp.allclose(draws["scale"][0], jnp.exp(posterior.particles[:, 0]))
    assert "slope[2]" in str(posterior.summary())


def test_flat_positions_can_be_named():
    target = nvgd.Target(lambda x: -jnp.sum(x**2), dim=2, names=["a", "b"])
    particles = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    draws = target.present(particles)
    assert list(draws) == ["a", "b"]
    assert jnp.array_equal(draws["b"], jnp.array([2.0, 4.0]))
    plain = nvgd.Target(lambda x: -jnp.sum(x**2), dim=2)
    assert jnp.array_equal(plain.present(particles)["x"], particles)


@pytest.mark.parametrize("example", [np.zeros(3), jnp.zeros((1, 3)), {"a": 0.0, "b": np.zeros(2)}])
def test_bare_log_density_with_an_example_position(example):
    def log_density(position):
        leaves = jax.tree.leaves(position)
        return -0.5 * sum((jnp.sum(leaf**2) for leaf in leaves), start=jnp.array(0.0))

    posterior = nvgd.sample(
        log_density, nvgd.ULA(0.1), example=example, num_particles=5, num_steps=2, progress=False
    )
    assert posterior.particles.shape == (5, 3)
    shapes = [leaf.shape for leaf in jax.tree.leaves(posterior.draws)]
    assert shapes == [(1, 5, *np.shape(leaf)) for leaf in jax.tree.leaves(example)]


def test_starting_particles_as_a_pytree():
    target = regression()
    initial = {"slope": np.ones((6, 3)), "log_scale": np.full(6, -1.0)}
    flow = nvgd.ULA(1e-9)
    posterior = nvgd.sample(target, flow, initial=initial, num_steps=1, progress=False)
    assert np.allclose(posterior.particles, [[-1, 1, 1, 1]] * 6, atol=1e-3)


def test_starting_particles_in_the_shape_of_a_single_array():
    def log_density(x):
        return -jnp.sum(x**2)

    for example, initial in ((np.zeros((2, 3)), np.ones((4, 2, 3))), (0.0, np.ones(4))):
        for start in (initial, initial.reshape(4, -1), initial.tolist()):
            posterior = nvgd.sample(
                log_density,
                nvgd.ULA(1e-9),
                example=example,
                initial=start,
                num_steps=1,
                progress=False,
            )
            assert posterior.draws["x"].shape == (1, *initial.shape)


def test_names_go_with_constrained_values():
    target = nvgd.Target(lambda x: -jnp.sum(x**2), dim=2, names=["a", "b"], constrain=jnp.exp)
    draws = target.present(jnp.array([[0.0, 1.0]]))
    assert jnp.allclose(draws["b"], jnp.exp(1.0))


def test_a_vectorised_likelihood_in_groups_gives_the_same_scores():
    plain = regression()
    grouped = nvgd.Target(
        log_prior,
        example={"slope": jnp.zeros(3), "log_scale": 0.0},
        log_likelihood=jax.vmap(log_likelihood, in_axes=(None, 0)),
        data=ROWS,
        vectorised=True,
        particles_at_once=2,
    )
    particles = 0.3 * jax.random.normal(jax.random.key(0), (5, 4))
    for ours, theirs in zip(
        grouped.log_densities_and_scores(particles),
        plain.log_densities_and_scores(particles),
        strict=True,
    ):
        assert jnp.allclose(ours, theirs, rtol=1e-4, atol=1e-3)


def test_a_target_prints_as_one_line():
    target = nvgd.Target(
        lambda x: -0.5 * x @ x,
        dim=2,
        log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2),
        data=jnp.zeros((50, 2)),
        batch_size=10,
    )
    assert repr(target) == "Target(2 coordinates, 50 data rows in batches of 10)"
