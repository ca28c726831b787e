"""The host loop: history, metrics, thinning, and what happens when values stop being finite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd import coordinates, directions, movers, stein
from nvgd._support.random_bits import random_normals
from nvgd.densities import Gaussian
from nvgd.running.chunks import CAPACITY
from nvgd.running.run import Run

GAUSSIAN = Gaussian([0.0, 0.0], [1.0, 1.0])
SINGLE = jnp.dtype(jnp.float32)


def sample(flow, log_density=GAUSSIAN.log_density, **options):
    options = {"dim": 2, "num_particles": 16, "num_steps": 10, "progress": False, **options}
    return nvgd.sample(log_density, flow, **options)


def test_history_has_one_entry_a_step():
    posterior = sample(nvgd.NVGD.paper(0.1, max_inner_steps=5, patience=2), num_steps=13)
    assert set(posterior.history) == {
        "log_density",
        "step_norm",
        "num_gradients",
        "stein_discrepancy",
        "inner_steps",
    }
    assert {values.shape for values in posterior.history.values()} == {(13,)}
    assert np.array_equal(posterior.history["num_gradients"], 16 * np.arange(1, 14))
    assert np.all(posterior.history["inner_steps"] <= 5)
    assert posterior.completed
    assert posterior.num_steps == 13
    assert "16 particles" in repr(posterior)


def test_history_does_not_depend_on_how_steps_are_chunked():
    """Watching often makes short chunks; longer than a chunk's capacity makes several."""
    num_steps = CAPACITY + 90
    plain = sample(nvgd.ULA(0.1), num_steps=num_steps)
    watched = sample(
        nvgd.ULA(0.1), num_steps=num_steps, metrics={"mean": jnp.mean}, metrics_every=37
    )
    assert np.array_equal(plain.particles, watched.particles)
    for name, values in plain.history.items():
        assert np.array_equal(values, watched.history[name])
    expected = [*range(0, num_steps, 37), num_steps]
    assert np.array_equal(watched.metrics["step"], expected)
    assert np.isclose(watched.metrics["mean"][-1], np.mean(watched.particles), atol=1e-6)


def test_sample_equals_the_steps_by_hand():
    flow = nvgd.SVGD(0.3)
    posterior = sample(flow, num_steps=6, seed=11)
    target = nvgd.Target(GAUSSIAN.log_density, dim=2)
    particle_key, init_key, run_key = jax.random.split(jax.random.key(11), 3)
    state = flow.init(target, random_normals(particle_key, (16, 2), SINGLE), key=init_key)
    for _ in range(6):
        state, _ = flow.step(target, state, key=run_key)
    assert jnp.allclose(posterior.particles, state.particles, atol=1e-5)


@pytest.mark.parametrize("thin", [1, 7, 100, 600])
def test_thinning_keeps_the_right_states(thin):
    seen = []
    posterior = sample(
        nvgd.ULA(0.1),
        num_particles=3,
        num_steps=1300,
        thin=thin,
        callback=lambda state: seen.append((int(state.step), np.asarray(state.particles))),
        metrics_every=thin,
    )
    expected = [particles for step, particles in seen if step and step % thin == 0]
    assert len(expected) == 1300 // thin
    assert np.array_equal(posterior.particles, np.concatenate(expected))


def test_seeds_give_different_starts_and_noise():
    first, second = (sample(nvgd.ULA(0.1), seed=seed).particles for seed in (0, 1))
    assert not np.allclose(first, second)


def test_a_log_density_that_turns_nan_stops_the_run_at_the_last_good_state():
    """Particles climb to the right until log(5 − x) is no longer defined."""

    def cliff(x):
        return 10 * jnp.sum(x) + jnp.log(5.0 - jnp.max(x))

    start, flow = 1e-4 * np.arange(8).reshape(4, 2), nvgd.SVGD(0.1, kernel=stein.RBF(1e6))
    with pytest.warns(nvgd.RunStoppedWarning, match="not finite at 4 of 4 particles") as caught:
        posterior = sample(flow, cliff, initial=start, num_particles=None, num_steps=400)
    assert not posterior.completed
    assert 0 < posterior.num_steps < 400
    assert jnp.all(jnp.isfinite(posterior.particles))
    assert jnp.all(jnp.isfinite(jax.vmap(cliff)(posterior.particles)))
    assert f"stopped at step {posterior.num_steps + 1}:" in posterior.status
    assert f"the particles of step {posterior.num_steps} are returned" in posterior.status
    assert str(caught[0].message) == posterior.status
    assert len(posterior.history["log_density"]) == posterior.num_steps
    assert np.all(np.isfinite(posterior.history["log_density"]))


def test_a_fault_at_the_very_last_state_is_found_too():
    def wall(x):
        return jnp.where(jnp.max(x) > 0.95, -jnp.inf, jnp.sum(x))

    with pytest.warns(nvgd.RunStoppedWarning, match="stopped at step 2"):
        posterior = sample(
            nvgd.SVGD(0.5, kernel=stein.RBF(1e6)),
            wall,
            initial=-0.1 * np.arange(6).reshape(3, 2),
            num_particles=None,
            num_steps=2,
        )
    assert posterior.num_steps == 1
    assert len(posterior.history["step_norm"]) == 1
    assert jnp.all(jnp.isfinite(jax.vmap(wall)(posterior.particles)))


def low_wall(x):
    return jnp.where(jnp.max(x) > 1.25, jnp.nan, jnp.sum(x))


@pytest.mark.xdist_group("faults")
@pytest.mark.parametrize("thin", [1, 3, 13])
@pytest.mark.parametrize("metrics_every", [1, 12, 13, 100])
def test_faults_leave_no_trace_in_what_is_kept_or_measured(thin, metrics_every):
    """Wherever chunks end: 12 steps of 0.1 fit under the wall at 1.25, the 13th does not."""
    for num_steps in (13, 40):
        with pytest.warns(nvgd.RunStoppedWarning, match="stopped at step 13"):
            posterior = sample(
                nvgd.SVGD(0.1, kernel=stein.RBF(1e6)),
                low_wall,
                initial=np.array([[0.0, 0.0], [-0.5, -0.5]]),
                num_particles=None,
                num_steps=num_steps,
                thin=thin,
                metrics={"largest": jnp.max},
                metrics_every=metrics_every,
            )
        assert posterior.num_steps == 12
        kept = np.asarray(posterior.particles).reshape(-1, 2, 2)[:, 0, 0]
        expected = 0.1 * np.arange(thin, 13, thin) if thin <= 12 else [1.2]
        assert np.allclose(kept, expected, atol=1e-4)
        steps = posterior.metrics["step"]
        assert np.all(np.diff(steps) > 0)
        assert steps[-1] == 12
        assert np.allclose(posterior.metrics["largest"], 0.1 * steps, atol=1e-4)


def test_a_density_that_ends_somewhere():
    """The default's particles step over the edge now and then; none is returned from there."""

    def log_density(x):
        return jnp.where(x[0] > 0, -x[0], -jnp.inf) - 0.5 * x[1] ** 2

    posterior = nvgd.sample(log_density, dim=2, num_steps=60, seed=1, progress=False)
    assert posterior.history["num_rescued"].sum() > 0
    assert posterior.completed
    assert np.all(posterior.particles[:, 0] > 0)
    assert np.all(np.isfinite(posterior.summary().columns["mc_error"]))


def test_a_step_that_overflows_is_not_taken():
    with pytest.warns(nvgd.RunStoppedWarning, match="the move made 16 of 16 particles non-finite"):
        posterior = sample(nvgd.ULA(1e38), lambda x: -0.5e6 * jnp.sum(x**2))
    assert jnp.all(jnp.isfinite(posterior.particles))
    assert posterior.num_steps == 0


def test_progress_bar_is_silent_when_output_is_not_a_terminal(capfd):
    sample(nvgd.ULA(0.1), progress=True)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_schedules_are_followed():
    schedule = movers.polynomial_decay(0.5, offset=2.0, power=1.0)
    flow = nvgd.ParticleFlow(
        coordinates.Identity(),
        directions.Kernel(stein.RBF(1.0)),
        movers.Euler(schedule),
    )
    target = nvgd.Target(lambda x: jnp.sum(x), dim=2)
    # One place for all particles: no repulsion, and a field equal to the score.
    state = flow.init(target, jnp.zeros((3, 2)), key=jax.random.key(0))
    for step in range(4):
        before = state.particles
        state, _ = flow.step(target, state, key=jax.random.key(0))
        assert jnp.allclose(state.particles - before, 0.5 / (1 + step / 2), rtol=1e-5)


def test_the_state_is_gathered_only_when_somebody_wants_it(monkeypatch):
    gathered = []
    whole_state = Run.whole_state
    monkeypatch.setattr(
        Run, "whole_state", lambda run: gathered.append(run.num_steps) or whole_state(run)
    )
    settings = {"dim": 2, "num_particles": 8, "num_steps": 400, "progress": False}
    nvgd.sample(lambda x: -0.5 * x @ x, nvgd.ULA(0.1), **settings)
    assert set(gathered) == {400}
    gathered.clear()
    nvgd.sample(
        lambda x: -0.5 * x @ x,
        nvgd.ULA(0.1),
        metrics={"mean": jnp.mean},
        metrics_every=100,
        **settings,
    )
    assert set(gathered) == {0, 100, 200, 300, 400}
