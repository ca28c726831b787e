"""num_steps="auto": runs that end when nothing can be told from an exact sample."""

import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd import coordinates, directions, movers
from nvgd.densities import Gaussian
from nvgd.running.stopping import CHECK_EVERY, PATIENCE

DENSITY = Gaussian([2.0, -1.0], [[1.0, 0.5], [0.5, 2.0]])
TARGET = nvgd.Target(DENSITY.log_density, dim=2)
# Steps that fall towards the end of the run, as the default's do, at a fraction of its price.
FALLING = nvgd.ParticleFlow(
    coordinates.Diagonal(), directions.Kernel(), movers.Reborn(movers.Capped(0.5))
)

pytestmark = pytest.mark.xdist_group("stopping")


def run(flow, **options):
    options = {"num_particles": 50, "num_steps": "auto", "progress": False, **options}
    return nvgd.sample(TARGET, flow, **options)


@pytest.fixture(scope="module")
def falling():
    return run(FALLING, max_steps=2000)


def test_a_flow_that_does_not_know_its_length_ends_where_it_rests():
    posterior = run(nvgd.SVGD(0.3), max_steps=2000)
    assert PATIENCE * CHECK_EVERY <= posterior.num_steps < 1000
    assert posterior.num_steps % CHECK_EVERY == 0
    assert posterior.completed
    assert posterior.diagnose().converged
    assert np.allclose(posterior.particles.mean(axis=0), DENSITY.mean, atol=0.1)
    # As if that number had been asked for.
    fixed = run(nvgd.SVGD(0.3), num_steps=posterior.num_steps)
    assert np.array_equal(fixed.particles, posterior.particles)
    # The looks are paid for: one gradient a particle each.
    looks = posterior.num_steps // CHECK_EVERY
    extra = posterior.history["num_gradients"] - fixed.history["num_gradients"]
    assert extra[-1] == 50 * looks
    assert extra[CHECK_EVERY - 2] == 0


def test_a_flow_whose_steps_fall_is_told_its_length_when_it_rests(falling):
    rest = falling.num_steps // 2
    assert falling.num_steps == 2 * rest
    assert rest % CHECK_EVERY == 0
    # A run of this length takes the same steps: they fall over its second half only.
    fixed = run(FALLING, num_steps=falling.num_steps)
    assert np.array_equal(fixed.particles, falling.particles)
    assert falling.stages == (("flow", 2 * rest),)


def test_interrupted_runs_end_at_the_same_step(falling, tmp_path):
    class Interrupted(Exception):
        pass

    def interrupt(state):
        if state.step >= 110:
            raise Interrupted

    options = {"max_steps": 2000, "checkpoint": tmp_path, "checkpoint_every": 30}
    with pytest.raises(Interrupted):
        run(FALLING, callback=interrupt, metrics_every=10, **options)
    again = run(FALLING, metrics_every=10, **options)
    assert np.array_equal(again.particles, falling.particles)
    assert np.array_equal(again.history["num_gradients"], falling.history["num_gradients"])
    with pytest.raises(nvgd.InputError, match="another run: it differs in max_steps"):
        run(FALLING, **{**options, "max_steps": 3000})


def test_a_run_that_does_not_rest_takes_its_maximum():
    with pytest.warns(nvgd.NotConvergedWarning, match="the run did not converge in 130 steps"):
        posterior = run(nvgd.ULA(1e-4), max_steps=130)
    assert posterior.num_steps == 130
    assert posterior.diagnose().verdict == "not yet"


def test_minibatches_are_looked_at_with_all_data():
    rows = np.linspace(-1.0, 3.0, 60).astype(np.float32)
    target = nvgd.Target(
        lambda x: -0.5 * jnp.sum(x**2),
        dim=1,
        log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2),
        data=rows,
        batch_size=6,
    )
    posterior = nvgd.sample(
        target, nvgd.SGLD(2e-3), num_particles=60, num_steps="auto", max_steps=900, progress=False
    )
    # A look is a pass over ten batches: not more often than every thirty steps.
    assert posterior.num_steps % 30 == 0
    assert posterior.num_steps < 900
    assert np.isclose(np.mean(posterior.particles), 60 / 61, atol=0.1)
    num_looks = posterior.num_steps // 30
    expected = 60 * (posterior.num_steps + 10 * num_looks)
    assert posterior.history["num_gradients"][-1] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_steps": "often"}, "num_steps must be a whole number or \"auto\", got 'often'"),
        ({"num_steps": 10, "max_steps": 20}, 'max_steps is for num_steps="auto"'),
        ({"max_steps": 0}, "max_steps must be a whole number ≥ 1, got 0"),
        ({"num_particles": 5}, 'num_steps="auto" needs at least 8 particles to tell, got 5'),
    ],
)
def test_lengths_that_make_no_sense(options, message):
    with pytest.raises(nvgd.InputError, match=message):
        run(nvgd.ULA(0.1), **options)
