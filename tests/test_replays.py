"""posterior.sample: further draws along the flow of a run."""

import jax
import numpy as np
import optax
import pytest

import nvgd
from nvgd.densities import Banana, Gaussian
from nvgd.directions import ResidualDirection

GAUSSIAN = Gaussian([3.0, -1.0], [[1.0, 0.5], [0.5, 2.0]])
# The default's parts, with a small network and coordinates that compile quickly.
TRAINER = nvgd.NeuralDirection(width=16, learning_rate=1e-3, max_inner_steps=3)
SMALL = nvgd.ParticleFlow(nvgd.Diagonal(), ResidualDirection(TRAINER), nvgd.Capped())

pytestmark = pytest.mark.xdist_group("replays")


def run(flow, density=GAUSSIAN, **options):
    options = {"num_particles": 60, "num_steps": 150, "progress": False, **options}
    return nvgd.sample(density.log_density, flow, dim=2, **options)


@pytest.fixture(scope="module")
def small():
    return run(SMALL)


def energy(particles, density):
    return float(nvgd.metrics.energy_distance(particles, density.sample(jax.random.key(99), 3000)))


def exact_energy(density, num):
    return np.mean([energy(density.sample(jax.random.key(i), num), density) for i in range(8)])


def test_fresh_draws_are_as_near_as_exact_ones(small):
    fresh = small.sample(200)
    assert fresh.particles.shape == (200, 2)
    assert energy(fresh.particles, GAUSSIAN) < 2 * exact_energy(GAUSSIAN, 200)
    assert fresh.diagnose().converged
    # Without a part in the flow, and before any correction, they are where it leads.
    plain = small.sample(200, num_corrections=0).particles
    assert np.allclose(plain.mean(axis=0), GAUSSIAN.mean, atol=0.3)
    assert np.allclose(np.std(plain, axis=0), np.sqrt(np.diag(GAUSSIAN.covariance)), rtol=0.25)


def test_the_same_seed_gives_the_same_draws_and_the_run_stays_what_it_is(small):
    before = np.array(small.particles)
    first, again, other = (small.sample(20, seed=seed).particles for seed in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.any(np.all(np.isclose(first, other), axis=1))
    assert np.array_equal(before, small.particles)
    # Points do not see each other: fewer of them, started alike, go the same way.
    start = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, -1.0]])
    few, fewer = (small.sample(n, initial=start[:n], num_corrections=0) for n in (3, 2))
    assert np.allclose(few.particles[:2], fewer.particles, atol=1e-4)


def test_a_point_that_starts_as_a_particle_ends_with_it():
    """The fields are those of the run, replayed from its seed."""
    start = np.array(jax.random.normal(jax.random.key(1), (40, 2)))
    for flow in (nvgd.SVGD(0.3), nvgd.SVGD(optimizer=optax.adam(0.05))):
        posterior = run(flow, initial=start, num_particles=None, num_steps=60)
        points = posterior.sample(5, initial=start[:5], num_corrections=0).particles
        assert np.allclose(points, posterior.particles[:5], atol=1e-3)
    with pytest.raises(nvgd.InputError, match="started from particles of your own: pass initial="):
        posterior.sample(5)


def test_corrections_bend_what_a_kernel_leaves():
    density = Banana()
    posterior = run(nvgd.SVGD(0.5), density, num_steps=300)
    fresh = posterior.sample(200).particles
    assert energy(fresh, density) < 2.5 * exact_energy(density, 200)


def test_langevin_dynamics_and_minibatches():
    rows = np.linspace(-1.0, 3.0, 60).astype(np.float32)
    target = nvgd.Target(
        lambda x: -0.5 * x @ x,
        dim=1,
        log_likelihood=lambda x, row: -0.5 * (row - x[0]) ** 2,
        data=rows,
        batch_size=6,
    )
    posterior = nvgd.sample(
        target, nvgd.SGLD(2e-3), num_particles=10, num_steps=200, progress=False
    )
    fresh = posterior.sample(300).particles
    assert np.isclose(np.mean(fresh), 60 / 61, atol=0.1)
    assert len(np.unique(np.round(fresh, 4))) > 290


def test_names_stay_and_an_automatic_length_is_replayed():
    target = nvgd.Target(GAUSSIAN.log_density, dim=2, names=["a", "b"])
    posterior = nvgd.sample(target, SMALL, num_steps="auto", max_steps=600, progress=False)
    assert len(posterior.recipe.stages) == 2
    fresh = posterior.sample(100)
    assert set(fresh.draws) == {"a", "b"}
    assert np.isclose(np.mean(fresh.draws["a"]), 3.0, atol=0.4)


def test_what_cannot_be_drawn(small, tmp_path):
    for wrong in (0, -3, 2.5):
        with pytest.raises(nvgd.InputError, match="num_draws must be a whole number ≥ 1"):
            small.sample(wrong)
    with pytest.raises(nvgd.InputError, match="num_corrections must be a whole number ≥ 0"):
        small.sample(3, num_corrections=-1)
    small.save(tmp_path / "run.npz")
    with pytest.raises(nvgd.InputError, match="sample runs the sampler again, which only"):
        nvgd.load(tmp_path / "run.npz").sample(3)
    mala = nvgd.ParticleFlow(
        nvgd.Identity(), nvgd.LangevinDirection(), nvgd.Metropolis(nvgd.Euler(0.3))
    )
    with pytest.raises(nvgd.InputError, match=r"Metropolis moves particles by .* another"):
        run(mala, num_steps=2).sample(3)
