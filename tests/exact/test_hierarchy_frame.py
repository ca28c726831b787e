"""Coordinates for hierarchical models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nvgd.exact.hierarchy_frame import Hierarchical, find_hierarchy, normal_misfit

NUM, LENGTH, GROUPS = 64, 8, 6
ERRORS = jnp.linspace(0.5, 2.0, GROUPS)


def log_density(x):
    """Effects around a mean, with a log scale, in centred form: data 0 with these errors."""
    mean, log_scale, effects = x[0], x[1], x[2:]
    prior = -0.5 * jnp.sum((effects - mean) ** 2) * jnp.exp(-2 * log_scale) - GROUPS * log_scale
    return prior - 0.5 * (mean**2 + log_scale**2) - 0.5 * jnp.sum((effects / ERRORS) ** 2)


def log_density_of_two(x):
    """Two sets of effects, each with a log scale of its own."""
    log_scales, effects = x[:2], x[2:].reshape(2, -1)
    prior = -0.5 * effects**2 * jnp.exp(-2 * log_scales)[:, None] - log_scales[:, None]
    return jnp.sum(prior) - 0.5 * jnp.sum(log_scales**2) - 0.5 * jnp.sum((x[2:] / ERRORS) ** 2)


def with_scores(function, positions):
    """Positions as rows, and their scores."""
    return positions, jax.vmap(jax.grad(function))(positions)


def in_the_model(key, log_scales):
    """Positions with these log scales, other coordinates spread as in the prior, and scores."""
    noise = jax.random.normal(key, (len(log_scales), 1 + GROUPS))
    mean, scales = noise[:, :1], jnp.exp(log_scales)
    effects = mean + scales * noise[:, 1:]
    return with_scores(log_density, jnp.concatenate([mean, log_scales, effects], axis=1))


def in_both(key, log_scales):
    """The same for two log scales."""
    noise = jax.random.normal(key, (len(log_scales), GROUPS))
    effects = jnp.repeat(jnp.exp(log_scales), GROUPS // 2, axis=1) * noise
    return with_scores(log_density_of_two, jnp.concatenate([log_scales, effects], axis=1))


MODELS = {1: (log_density, in_the_model), 2: (log_density_of_two, in_both)}


def found(num_scales):
    draw = MODELS[num_scales][1]
    log_scales = jax.random.uniform(
        jax.random.key(0), (NUM * LENGTH, num_scales), minval=-1.5, maxval=1
    )
    rows = draw(jax.random.key(1), log_scales)
    positions, scores = (np.asarray(values).reshape(NUM, LENGTH, -1) for values in rows)
    hierarchy = find_hierarchy(positions, scores, np.inf)
    assert hierarchy is not None
    assert hierarchy.rates.shape == (num_scales,)
    return hierarchy


@pytest.mark.parametrize(("num_scales", "far"), [(1, [-6.0]), (2, [-6.0, -3.0])])
def test_hierarchies_that_were_found_reach_far_into_their_necks(num_scales, far):
    with jax.enable_x64(True):
        hierarchy = found(num_scales)
        rows = jnp.broadcast_to(jnp.array(far), (50, num_scales))
        expressed, scores = hierarchy.express(*MODELS[num_scales][1](jax.random.key(2), rows))
    # Given the scales, all other coordinates are standard normal.
    residuals = np.asarray(expressed + scores)[:, num_scales:]
    assert np.max(np.abs(residuals)) < 0.05


def test_hierarchies_of_many_groups_are_found():
    num, length, groups = 256, 24, 140
    rng = np.random.default_rng(0)
    log_scales = rng.uniform(-2, 0.5, size=num * length)
    precisions = np.exp(-2 * log_scales)
    effects = rng.normal(size=(num * length, groups)) / np.sqrt(precisions + 1)[:, None]
    squares = np.sum(effects**2, axis=1)
    slopes = squares * precisions - groups - log_scales
    scores = np.column_stack([slopes, -effects * (precisions + 1)[:, None]])
    positions = np.column_stack([log_scales, effects])
    shape = num, length, groups + 1
    hierarchy = find_hierarchy(positions.reshape(shape), scores.reshape(shape), np.inf)
    assert hierarchy is not None
    log_scale = np.asarray(hierarchy.basis)[0, 0]
    assert np.asarray(hierarchy.rates) / log_scale == pytest.approx([-2.0], rel=0.01)


@pytest.mark.parametrize("num_scales", MODELS)
def test_the_frame_is_an_invertible_map_with_its_scores(num_scales):
    function, draw = MODELS[num_scales]
    with jax.enable_x64(True):
        coordinates, hierarchy = Hierarchical(), found(num_scales)
        log_scales = jax.random.uniform(
            jax.random.key(4), (40, num_scales), minval=-2.0, maxval=2.0
        )
        positions, scores = draw(jax.random.key(3), log_scales)
        frame = coordinates.fit(positions, scores, hierarchy)
        expressed, their_scores = frame.express(positions, scores)
        assert np.allclose(frame.restore(expressed), positions, atol=1e-8)

        def restored(u):
            return frame.restore(u[None])[0]

        def density(u):
            return function(restored(u)) + frame.log_volumes(u[None])[0]

        assert np.allclose(jax.vmap(jax.grad(density))(expressed), their_scores, atol=1e-6)
        logs = jnp.linalg.slogdet(jax.vmap(jax.jacobian(restored))(expressed))[1]
        volumes = frame.log_volumes(expressed)
        assert np.allclose(logs - logs[0], volumes - volumes[0], atol=1e-8)


def test_without_a_hierarchy_none_is_found():
    normal = np.random.default_rng(0).normal(size=(NUM, LENGTH, 5))
    limit = normal_misfit(normal[:, -1], -normal[:, -1])
    assert find_hierarchy(normal, -normal, limit) is None
    assert find_hierarchy(normal, normal * np.nan, np.inf) is None
    assert find_hierarchy(normal[:, :, :2], normal[:, :, :2], np.inf) is None
