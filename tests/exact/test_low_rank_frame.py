"""Coordinates for fewer particles than dimensions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd._support.robust import coordinate_scales
from nvgd.exact.adaptation import is_stray
from nvgd.exact.low_rank_frame import with_principal_directions
from nvgd.flow.coordinates.base import DiagonalFrame

DIM = 120
CORRELATED = 0.9 * np.ones((DIM, DIM)) + 0.1 * np.eye(DIM)
WALK = 0.9 ** np.abs(np.subtract.outer(np.arange(DIM), np.arange(DIM)))


def draws_and_scores(covariance, num):
    normals = np.random.default_rng(0).normal(size=(num, len(covariance)))
    draws = normals @ np.linalg.cholesky(covariance).T
    return tuple(jnp.asarray(x) for x in (draws, -draws @ np.linalg.inv(covariance)))


def fitted(draws, scores):
    diagonal = DiagonalFrame(*coordinate_scales(draws))
    return diagonal, with_principal_directions(diagonal, draws, scores)


def condition(frame, covariance):
    """Condition number of the target in the frame's coordinates."""
    origin = frame.restore(jnp.zeros((1, DIM)))
    matrix = np.asarray(frame.restore(jnp.eye(DIM)) - origin, np.float64)
    return np.linalg.cond(matrix @ np.linalg.inv(covariance) @ matrix.T)


def test_the_frame_is_an_invertible_map_with_its_scores():
    with jax.enable_x64(True):
        draws, scores = draws_and_scores(WALK, 40)
        _, frame = fitted(draws, scores)
        expressed, their_scores = frame.express(draws, scores)
        assert np.allclose(frame.restore(expressed), draws)
        precision = jnp.asarray(np.linalg.inv(WALK))

        def log_density(u):
            x = frame.restore(u[None])[0]
            return -0.5 * x @ precision @ x

        assert np.allclose(jax.vmap(jax.grad(log_density))(expressed), their_scores)
        assert np.all(frame.log_volumes(expressed) == 0)


@pytest.mark.parametrize(
    ("covariance", "gain"), [(CORRELATED, 30), (WALK, 4)], ids=["correlated", "walk"]
)
def test_forty_particles_tell_what_correlates_in_120_dimensions(covariance, gain):
    diagonal, frame = fitted(*draws_and_scores(covariance, 40))
    assert gain * condition(frame, covariance) < condition(diagonal, covariance)


def test_independent_coordinates_get_their_scales_without_sampling_error():
    variances = np.linspace(0.5, 2.0, DIM)
    _, frame = fitted(*draws_and_scores(np.diag(variances), 40))
    assert condition(frame, np.diag(variances)) < 1.05


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_particles_or_scores_that_are_all_equal_leave_the_coordinates_as_they_are(spread):
    draws = spread * jax.random.normal(jax.random.key(0), (8, 20))
    frame = with_principal_directions(
        DiagonalFrame(jnp.zeros(20), jnp.ones(20)), draws, jnp.zeros((8, 20))
    )
    expressed, _ = frame.express(draws, draws)
    assert np.isfinite(expressed).all()
    assert np.allclose(frame.restore(expressed), draws, atol=1e-4)


def test_strays_do_not_count():
    draws, scores = draws_and_scores(CORRELATED, 40)
    _, frame = fitted(draws.at[3].set(1e4), scores.at[3].set(-1e4).at[5].set(1e5))
    diagonal, _ = fitted(draws, scores)
    assert 10 * condition(frame, CORRELATED) < condition(diagonal, CORRELATED)


def test_no_exact_draw_of_correlated_coordinates_is_a_stray():
    draws, scores = draws_and_scores(CORRELATED, 100)
    assert not is_stray(draws, 0.5 * jnp.sum(draws * scores, axis=1)).any()


def test_a_run_with_fewer_particles_than_dimensions_converges():
    precision = jnp.asarray(np.linalg.inv(CORRELATED), jnp.float32)
    posterior = nvgd.sample(
        lambda x: -0.5 * x @ precision @ x, dim=DIM, num_particles=60, progress=False
    )
    draws = np.asarray(posterior.draws["x"]).reshape(-1, DIM)
    assert posterior.diagnose().verdict == "converged"
    assert posterior.num_steps <= 3000
    assert np.all(np.abs(draws.std(axis=0) - 1) < 0.12)
