"""posterior.sample: further draws along the flow of a run."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nvgd
from nvgd.densities import Gaussian

GAUSSIAN = Gaussian([3.0, -1.0], [[1.0, 0.5], [0.5, 2.0]])
TARGET = nvgd.Target(GAUSSIAN.log_density, dim=2, names=["a", "b"])
FLOW = nvgd.SVGD(0.3)
# Capped steps that fall towards the end of the run, as the default's do.
FALLING = nvgd.ParticleFlow(nvgd.Diagonal(), nvgd.KernelDirection(), nvgd.Capped(0.5))

# One number for all: every other one is a program of its own.
NUM_DRAWS = 100

pytestmark = pytest.mark.xdist_group("replays")


def run(flow, target=TARGET, **options):
    options = {"num_particles": 60, "num_steps": 150, "progress": False, **options}
    return nvgd.sample(target, flow, **options)


@pytest.fixture(scope="module")
def posterior():
    return run(FLOW)


def energy(particles):
    reference = GAUSSIAN.sample(jax.random.key(99), 3000)
    return float(nvgd.metrics.energy_distance(particles, reference))


def test_fresh_draws_are_about_as_near_as_exact_ones(posterior):
    exact = [energy(GAUSSIAN.sample(jax.random.key(i), NUM_DRAWS)) for i in range(8)]
    fresh = posterior.sample(NUM_DRAWS)
    assert fresh.particles.shape == (NUM_DRAWS, 2)
    assert energy(fresh.particles) < max(exact)
    assert set(fresh.draws) == {"a", "b"}
    assert fresh.diagnose().converged


def test_the_same_seed_gives_the_same_draws_and_the_run_stays_what_it_is(posterior):
    before = np.array(posterior.particles)
    first, again, other = (posterior.sample(NUM_DRAWS, seed=s).particles for s in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.any(np.all(np.isclose(first, other), axis=1))
    assert np.array_equal(before, posterior.particles)


def test_points_that_start_as_particles_end_with_them():
    """The fields are those of the run, replayed from its seed; points have no part in them."""
    start = np.array(jax.random.normal(jax.random.key(1), (60, 2)))
    others = np.concatenate([start[:50], np.full((50, 2), 4.0)])
    # Adam makes much of small differences: not for long.
    for flow, num_steps in ((FLOW, 60), (nvgd.SVGD(optimizer=optax.adam(0.05)), 10)):
        posterior = run(flow, initial=start, num_particles=None, num_steps=num_steps)
        points = posterior.sample(NUM_DRAWS, initial=others, num_corrections=0).particles
        assert np.allclose(points[:50], posterior.particles[:50], atol=1e-3)
        assert np.allclose(points[50:], points[50], atol=1e-3)
    with pytest.raises(nvgd.InputError, match="started from particles of your own: pass initial="):
        posterior.sample(5)


def test_capped_steps_and_a_run_of_automatic_length():
    posterior = run(FALLING, num_steps="auto", max_steps=400)
    recipe = posterior.recipe
    assert recipe is not None
    assert len(recipe.stages) == 2
    points = np.asarray(posterior.sample(NUM_DRAWS, num_corrections=0).particles)
    deviations = np.sqrt(np.diag(GAUSSIAN.covariance))
    assert np.allclose((points.mean(axis=0) - GAUSSIAN.mean) / deviations, 0.0, atol=0.4)
    assert np.allclose(np.std(points, axis=0), deviations, rtol=0.3)


def test_the_defaults_field_is_its_velocity_at_the_particles():
    direction = nvgd.ResidualDirection(nvgd.NeuralDirection(width=8, depth=1, max_inner_steps=2))
    particles = jax.random.normal(jax.random.key(0), (30, 2))
    state = direction.init(particles, key=jax.random.key(1))
    fit = eqx.filter_jit(direction.fit)(
        particles, -2 * particles, state, view=None, key=jax.random.key(2)
    )
    assert fit.field is not None
    assert np.allclose(fit.field(particles, -2 * particles), fit.velocities, atol=1e-5)
    # Beyond the outermost particle the repulsion stays what it is there.
    far = jnp.array([[50.0, 0.0], [60.0, 0.0]])
    near, further = fit.field(far, jnp.zeros((2, 2)))
    assert np.isclose(near[0], further[0], atol=0.2)


def test_langevin_dynamics_and_minibatches():
    rows = np.linspace(-1.0, 3.0, 60).astype(np.float32)
    target = nvgd.Target(
        lambda x: -0.5 * x @ x,
        dim=1,
        log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2),
        data=rows,
        batch_size=6,
    )
    posterior = run(nvgd.SGLD(2e-3), target, num_particles=10, num_steps=200)
    fresh = posterior.sample(NUM_DRAWS).particles
    assert np.isclose(np.mean(fresh), 60 / 61, atol=0.15)
    assert len(np.unique(np.asarray(fresh))) == NUM_DRAWS


def test_what_cannot_be_drawn(posterior, tmp_path):
    for wrong in (0, -3):
        with pytest.raises(nvgd.InputError, match="num_draws must be a whole number ≥ 1"):
            posterior.sample(wrong)
    with pytest.raises(nvgd.InputError, match="num_corrections must be a whole number ≥ 0"):
        posterior.sample(3, num_corrections=-1)
    posterior.save(tmp_path / "run.npz")
    with pytest.raises(nvgd.InputError, match="sample runs the sampler again, which only"):
        nvgd.load(tmp_path / "run.npz").sample(3)
    mover = nvgd.Metropolis(nvgd.Euler(0.3))
    mala = nvgd.ParticleFlow(nvgd.Identity(), nvgd.LangevinDirection(), mover)
    with pytest.raises(nvgd.InputError, match=r"Metropolis moves particles by .* another seed"):
        run(mala, num_steps=2).sample(3)
