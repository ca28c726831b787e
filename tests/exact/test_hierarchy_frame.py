"""Coordinates for hierarchical models."""

import jax
import jax.numpy as jnp
import numpy as np

from nvgd.exact.hierarchy_frame import Hierarchical, find_hierarchy, normal_misfit

NUM, LENGTH, GROUPS = 64, 8, 6
ERRORS = jnp.linspace(0.5, 2.0, GROUPS)


def log_density(x):
    """Effects around a mean, with a log scale, in centred form: data 0 with these errors."""
    mean, log_scale, effects = x[0], x[1], x[2:]
    prior = -0.5 * jnp.sum((effects - mean) ** 2) * jnp.exp(-2 * log_scale) - GROUPS * log_scale
    return prior - 0.5 * (mean**2 + log_scale**2) - 0.5 * jnp.sum((effects / ERRORS) ** 2)


def in_the_model(key, log_scales):
    """Positions with these log scales, other coordinates spread as in the prior, and scores."""
    noise = jax.random.normal(key, (*log_scales.shape, 1 + GROUPS), log_scales.dtype)
    mean, scales = noise[..., :1], jnp.exp(log_scales)[..., None]
    positions = [mean, log_scales[..., None], mean + scales * noise[..., 1:]]
    positions = jnp.concatenate(positions, axis=-1)
    rows = positions.reshape(-1, 2 + GROUPS)
    scores = jax.vmap(jax.grad(log_density))(rows)
    return positions, scores.reshape(positions.shape)


def found():
    log_scales = jax.random.uniform(jax.random.key(0), (NUM, LENGTH), minval=-1.5, maxval=1.5)
    positions, scores = map(np.asarray, in_the_model(jax.random.key(1), log_scales))
    hierarchy = find_hierarchy(positions, scores, np.inf)
    assert hierarchy is not None
    return hierarchy


def test_a_hierarchy_that_was_found_reaches_far_into_the_neck():
    with jax.enable_x64(True):
        hierarchy = found()
        positions, scores = in_the_model(jax.random.key(2), jnp.full((50, 1), -6.0))
        expressed, scores = hierarchy.express(positions[:, 0], scores[:, 0])
    # Given the scale, all other coordinates are standard normal.
    residuals = np.asarray(expressed + scores)[:, 1:]
    assert np.max(np.abs(residuals)) < 0.05


def test_its_frame_is_an_invertible_map_with_its_scores():
    with jax.enable_x64(True):
        coordinates, hierarchy = Hierarchical(), found()
        log_scales = jnp.linspace(-2.0, 2.0, 40)[:, None]
        positions, scores = (x[:, 0] for x in in_the_model(jax.random.key(3), log_scales))
        frame = coordinates.fit(positions, scores, hierarchy)
        expressed, their_scores = frame.express(positions, scores)
        assert np.allclose(frame.restore(expressed), positions, atol=1e-8)

        def restored(u):
            return frame.restore(u[None])[0]

        def density(u):
            return log_density(restored(u)) + frame.log_volumes(u[None])[0]

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
