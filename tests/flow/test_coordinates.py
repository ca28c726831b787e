import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nvgd import coordinates
from nvgd._support.robust import median, quantiles, student_scatter
from nvgd.densities import Funnel, Gaussian
from nvgd.flow.coordinates.base import AffineFrame, DiagonalFrame
from nvgd.flow.coordinates.driver_frame import DriverFrame

COORDINATES = coordinates.Adaptive()
# One for all tests: it takes long to compile.
SEARCH = jax.jit(COORDINATES.search)


def rotation(dim: int) -> jax.Array:
    return jnp.linalg.qr(jax.random.normal(jax.random.key(7), (dim, dim)))[0]


def driver_frame(dim: int) -> DriverFrame:
    keys = jax.random.split(jax.random.key(0), 4)
    lower = jnp.tril(0.3 * jax.random.normal(keys[0], (dim, dim))) + jnp.eye(dim)
    offsets, tilts, slopes = 0.5 * jax.random.normal(keys[1], (3, dim - 1))
    centre = jax.random.normal(keys[2], (dim,))
    one = jnp.array(1.3)
    basis = lower @ rotation(dim)
    return DriverFrame(centre, basis, jnp.linalg.inv(basis), one, offsets, tilts, slopes)


FRAMES = {
    "affine": AffineFrame.of(jnp.array([1.0, -1.0, 0.0]), jnp.tril(jnp.ones((3, 3)))),
    "diagonal": DiagonalFrame(jnp.arange(3.0), jnp.array([0.1, 1.0, 10.0])),
    "driver": driver_frame(3),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_frames_are_inverted_and_carry_scores_over(frame):
    """The score of u is the gradient of log p(T(u)) + log|det ∂T/∂u|, Jacobian included."""
    density = Gaussian([0.3, 0.0, -0.5], [[1.0, 0.4, 0.0], [0.4, 2.0, 0.1], [0.0, 0.1, 0.5]])
    particles = jax.random.normal(jax.random.key(1), (20, 3))
    scores = jax.vmap(jax.grad(density.log_density))(particles)
    expressed, expressed_scores = frame.express(particles, scores)

    def log_density(u):
        def move(v):
            return frame.restore(v[None])[0]

        return density.log_density(move(u)) + jnp.linalg.slogdet(jax.jacobian(move)(u))[1]

    assert jnp.allclose(frame.restore(expressed), particles, atol=1e-4)
    expected = jax.vmap(jax.grad(log_density))(expressed)
    assert jnp.allclose(expressed_scores, expected, atol=1e-3, rtol=1e-3)


def test_volumes_are_those_of_the_map():
    frame = driver_frame(3)
    points = jax.random.normal(jax.random.key(3), (20, 3))
    jacobians = jax.vmap(jax.jacfwd(lambda u: frame.restore(u[None])[0]))(points)
    _, expected = jnp.linalg.slogdet(jacobians)
    differences = frame.log_volumes(points) - expected
    assert np.allclose(differences, differences[0], atol=1e-4)


def search(density, particles, num_fits=5) -> Any:
    scores = jax.vmap(jax.grad(density))(particles)
    state: Any = COORDINATES.init(particles)
    for _ in range(num_fits):
        state = SEARCH(particles, scores, state)
    return COORDINATES.fit(particles, scores, state), state, scores


@pytest.mark.parametrize(("dim", "where"), [(2, "end"), (5, "start")])
def test_the_driver_of_a_rotated_funnel_is_found_from_the_scores(dim, where):
    funnel, turn = Funnel(dim), rotation(dim)
    particles = jax.random.normal(jax.random.key(1), (200, dim))
    if where == "end":
        particles = funnel.sample(jax.random.key(1), 200) @ turn
    frame, state, scores = search(lambda x: funnel.log_density(turn @ x), particles)
    along = state.frame.covector / jnp.linalg.norm(state.frame.covector)
    assert abs(along @ turn[0]) > 0.999
    # A unit of x₁ is half a unit of the others' log scale.
    slopes = state.frame.slopes * jnp.linalg.norm(state.frame.covector)
    assert np.allclose(jnp.abs(slopes), 0.5, atol=0.05)
    # In these coordinates the funnel is a normal density: its score is affine in the position.
    expressed, expressed_scores = frame.express(particles, scores)
    columns = jnp.concatenate([jnp.ones((200, 1)), expressed], axis=1)
    fitted = columns @ jnp.linalg.lstsq(columns, expressed_scores)[0]
    error = jnp.median(jnp.abs(expressed_scores - fitted))
    assert error < 0.3 * jnp.median(jnp.abs(expressed_scores))


def test_no_driver_is_used_where_there_is_none():
    density = Gaussian(np.linspace(-1, 1, 5), 0.8 ** np.abs(np.subtract.outer(range(5), range(5))))
    _, state, _ = search(density.log_density, density.sample(jax.random.key(0), 200))
    assert jnp.all(jnp.abs(state.frame.slopes) < 0.02)


def test_whitening_is_not_spoilt_by_strays():
    particles = jax.random.normal(jax.random.key(0), (200, 3)) * jnp.array([1.0, 10.0, 0.1])
    particles = particles.at[:10].add(1e6)
    centre, lower = student_scatter(particles, 4)
    # A stray counts as much as one at a few standard deviations: ordinary moments are 10⁵ off.
    deviations = jnp.sqrt(jnp.diag(lower @ lower.T)) / jnp.array([1.0, 10.0, 0.1])
    assert jnp.all((deviations > 0.5) & (deviations < 2.0))
    assert np.allclose(centre / jnp.array([1.0, 10.0, 0.1]), 0.0, atol=0.3)


def test_too_few_particles_for_a_scatter_are_scaled_coordinate_by_coordinate():
    particles = jax.random.normal(jax.random.key(0), (9, 8)) * jnp.logspace(-3, 3, 8)
    frame, state, scores = search(lambda x: -0.5 * x @ x, particles)
    assert state is None
    expressed, _ = frame.express(particles, scores)
    lower, upper = quantiles(expressed, 0.25, 0.75)
    assert np.allclose(0.7413 * (upper - lower), 1.0, atol=1e-3)


def test_few_noisy_particles_are_scaled_robustly_without_sorts():
    particles = jax.random.normal(jax.random.key(0), (50, 48)) * jnp.logspace(-3, 3, 48)
    # Two particles so far away that they would dominate means and variances.
    particles = particles.at[:2].mul(1e5)
    state = COORDINATES.init(particles, is_noisy=True)
    frame = COORDINATES.fit(particles, particles, state)
    expressed, _ = frame.express(particles, particles)
    deviations = jnp.std(expressed[2:], axis=0)
    assert jnp.all((deviations > 0.7) & (deviations < 1.4))
    assert jnp.all(jnp.abs(jnp.mean(expressed[2:], axis=0)) < 0.3)


def test_particles_that_agree_on_a_coordinate_have_finite_coordinates():
    particles = jax.random.normal(jax.random.key(0), (200, 2)).at[:, 1].set(3.0)
    frame, _, scores = search(lambda x: -0.5 * x @ x, particles)
    expressed, expressed_scores = frame.express(particles, scores)
    assert jnp.all(jnp.isfinite(expressed))
    assert jnp.all(jnp.isfinite(expressed_scores))


def test_median_agrees_with_a_sort():
    values = jax.random.cauchy(jax.random.key(0), (101, 3))
    assert np.array_equal(median(values), np.median(values, axis=0))


@pytest.mark.parametrize("wild", [1e20, -1e20, 3e38, -3e38, np.inf, -np.inf])
def test_quantiles_are_exact_whatever_one_of_the_values_is(wild):
    values = jax.random.normal(jax.random.key(0), (40, 3)).at[7, 1].set(wild)
    ordered = np.sort(values, axis=0)
    for share in (0.01, 0.25, 0.5, 0.9, 1.0):
        assert np.array_equal(quantiles(values, share)[0], ordered[math.ceil(share * 40) - 1])


def test_particles_most_of_which_agree_have_finite_coordinates():
    particles = jax.random.normal(jax.random.key(0), (100, 2)).at[:60].set(1.0)
    for same in (particles, jnp.ones((100, 2))):
        centre, lower = student_scatter(same, 4)
        assert jnp.all(jnp.isfinite(centre))
        assert jnp.all(jnp.isfinite(lower))
