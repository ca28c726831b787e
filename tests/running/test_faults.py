"""What goes wrong around a run: nothing is corrupted, the last good state is kept."""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings
from datetime import timedelta

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd import coordinates, directions, movers

TARGET = nvgd.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
OPTIONS = {"num_particles": 10, "num_steps": 60, "progress": False}

pytestmark = pytest.mark.xdist_group("faults")


def run(**options):
    return nvgd.sample(TARGET, nvgd.ULA(), **{**OPTIONS, **options})


@pytest.fixture(scope="module")
def undisturbed():
    return run()


def at_step(number, action):
    def callback(state):
        if state.step == number:
            action()

    return {"callback": callback, "metrics_every": 10}


@contextlib.contextmanager
def small_files():
    """As on a disk that is full: no file may have more than a kilobyte."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))

    try:
        yield limit
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_costs_checkpoints_and_nothing_else(undisturbed, tmp_path):
    options = {"checkpoint": tmp_path, "checkpoint_every": 10}
    with small_files() as limit, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = run(**at_step(30, limit), **options)
    messages = {str(w.message) for w in caught if w.category is nvgd.CheckpointWarning}
    assert len(messages) >= 3
    assert all("The run goes on" in message and "make room" in message for message in messages)
    assert np.array_equal(posterior.particles, undisturbed.particles)
    # No half-written file, and the checkpoints before the fault can be used.
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "checkpoint-000000000010.npz",
        "checkpoint-000000000020.npz",
    ]
    assert np.array_equal(run(**options).particles, undisturbed.particles)


def test_a_directory_that_disappears(undisturbed, tmp_path):
    directory = tmp_path / "gone"
    with pytest.warns(nvgd.CheckpointWarning, match="No such file"):
        posterior = run(
            **at_step(30, lambda: shutil.rmtree(directory)),
            checkpoint=directory,
            checkpoint_every=10,
        )
    assert np.array_equal(posterior.particles, undisturbed.particles)


def test_a_place_where_nothing_can_be_written_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(nvgd.InputError, match="checkpoint must be a directory that can be written"):
        run(checkpoint=tmp_path / "file")


def test_foreign_files_among_checkpoints_are_refused_and_left_alone(undisturbed, tmp_path):
    foreign = tmp_path / "checkpoint-000000000055.npz"
    np.savez(foreign, something=np.zeros(3))
    content = foreign.read_bytes()
    with pytest.raises(nvgd.InputError, match="damaged or not a file of nvgd"):
        run(checkpoint=tmp_path)
    posterior = tmp_path / "checkpoint-000000000056.npz"
    undisturbed.save(posterior)
    with pytest.raises(nvgd.InputError, match="holds a posterior"):
        run(checkpoint=tmp_path)
    assert foreign.read_bytes() == content


def test_clocks_that_jump_change_nothing(undisturbed, tmp_path, monkeypatch):
    jumps = iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: 1e9 * (-1) ** next(jumps))
    every = timedelta(microseconds=1)
    posterior = run(checkpoint=tmp_path, checkpoint_every=every, **at_step(30, lambda: None))
    assert np.array_equal(posterior.particles, undisturbed.particles)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_log_density_that_raises_after_a_while_ends_the_run_at_its_last_good_state(tmp_path):
    calls = iter(range(400))

    def check(x):
        if next(calls, None) is None:
            raise ConnectionError("the simulator is gone")
        return np.float32(0.0)

    @jax.custom_jvp
    def simulated(x):
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(check, shape, x, vmap_method="sequential")

    simulated.defjvp(lambda primals, tangents: (simulated(*primals), jnp.zeros(())))
    target = nvgd.Target(lambda x: -0.5 * jnp.sum(x**2) + simulated(x), dim=2)
    options = {**OPTIONS, "checkpoint": tmp_path, "checkpoint_every": 5}
    with pytest.warns(nvgd.RunStoppedWarning, match="raised an error .*the simulator is gone"):
        posterior = nvgd.sample(target, nvgd.ULA(), **options)
    assert 0 < posterior.num_steps < 60
    assert np.all(np.isfinite(posterior.particles))
    # Mended, it goes on, and ends where it would have ended.
    calls = iter(range(10**9))
    again = nvgd.sample(target, nvgd.ULA(), **options)
    assert again.completed
    assert np.allclose(again.particles, run().particles, atol=1e-6)


def raising_where(is_bad):
    """A log density whose host raises an error at some of the particles."""

    def check(x):
        if is_bad(np.asarray(x)):
            raise RuntimeError("no answer there")
        return np.float32(0.0)

    @jax.custom_jvp
    def simulated(x):
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(check, shape, x, vmap_method="sequential")

    simulated.defjvp(lambda primals, tangents: (simulated(*primals), jnp.zeros(())))
    return nvgd.Target(lambda x: -0.5 * jnp.sum(x**2) + simulated(x), dim=2)


def test_an_error_at_one_particle_leaves_the_particles_of_the_last_good_step(tmp_path):
    path = np.asarray(run(thin=1).particles).reshape(60, 10, 2)
    farthest = np.max(np.abs(path), axis=(1, 2))
    # A particle leaves the box of all earlier ones.
    last = int(np.argmax(farthest))
    assert 5 < last < 55
    edge = (farthest[last] + max(farthest[:last])) / 2
    target = raising_where(lambda x: np.any(np.abs(x) > edge))
    for checkpoint in (None, tmp_path):
        with pytest.warns(nvgd.RunStoppedWarning) as caught:
            posterior = nvgd.sample(target, nvgd.ULA(), **OPTIONS, checkpoint=checkpoint)
        # Of step `last + 1`, at which the error is raised.
        assert posterior.num_steps == last + 1
        assert np.allclose(posterior.particles, path[last], atol=1e-5)
        assert all(len(values) == last + 1 for values in posterior.history.values())
        (message,) = (str(w.message) for w in caught if w.category is nvgd.RunStoppedWarning)
        assert message.startswith(f"stopped after step {last + 1}: the log density raised an error")
        assert "(RuntimeError: no answer there)" in message
        assert message.endswith("resumes from there.") == (checkpoint is not None)
        diagnosis = posterior.diagnose()
        assert diagnosis.verdict == "not yet"
        assert diagnosis.advice == "Mend the log density, then run again."
    assert (tmp_path / f"checkpoint-{last + 1:012d}.npz").exists()


def test_an_error_at_the_starting_particles_is_one_sentence():
    target = raising_where(lambda x: True)
    with pytest.raises(
        nvgd.InputError, match=r"starting particles \(RuntimeError: no ans"
    ) as caught:
        nvgd.sample(target, nvgd.ULA(), **OPTIONS)
    assert "\n" not in str(caught.value)


INTERRUPTED = """
import signal
import sys
import jax.numpy as jnp
import nvgd
# What is started in the background inherits that it is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
posterior = nvgd.sample(
    lambda x: -0.5 * jnp.sum(x**2), nvgd.ULA(), dim=2, num_steps=10**9, num_particles=10,
    checkpoint=sys.argv[1], checkpoint_every=1000, progress=False,
)
print(posterior.num_steps)
"""


def test_ctrl_c_ends_a_run_at_once_and_leaves_a_checkpoint(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 100
    while len(list(tmp_path.glob("checkpoint-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    interrupted_at = time.monotonic()
    try:
        output, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert time.monotonic() - interrupted_at < 10
    assert process.returncode == 0
    assert "RunStoppedWarning: stopped by Ctrl-C after step" in errors
    assert "The same call resumes from there" in errors
    reached = int(output)
    assert os.path.exists(tmp_path / f"checkpoint-{reached:012d}.npz")
    density = nvgd.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    options = {"num_particles": 10, "num_steps": reached + 10, "progress": False}
    resumed = nvgd.sample(
        density, nvgd.ULA(), checkpoint=tmp_path, checkpoint_every=1000, **options
    )
    assert resumed.num_steps == reached + 10
    assert os.path.exists(tmp_path / f"checkpoint-{reached + 10:012d}.npz")


def press_ctrl_c():
    raise KeyboardInterrupt


def test_ctrl_c_returns_what_there_is_and_the_same_call_resumes(undisturbed, tmp_path):
    with pytest.warns(nvgd.RunStoppedWarning, match=r"stopped by Ctrl-C after step 30 of 60"):
        stopped = run(**at_step(30, press_ctrl_c))
    assert stopped.num_steps == 30
    assert not stopped.completed
    assert "resumes" not in stopped.status
    assert all(len(values) == 30 for values in stopped.history.values())
    assert np.array_equal(stopped.particles, run(num_steps=30).particles)
    assert stopped.draws["x"].shape == (1, 10, 2)
    options = {"checkpoint": tmp_path, "metrics": {"mean": jnp.mean}}
    with pytest.warns(nvgd.RunStoppedWarning, match="The same call resumes from there"):
        run(**at_step(30, press_ctrl_c), **options)
    again = run(**at_step(-1, press_ctrl_c), **options)
    assert np.array_equal(again.particles, undisturbed.particles)
    assert again.metrics["step"].tolist() == list(range(0, 61, 10))


def test_ctrl_c_before_the_first_step_is_raised(tmp_path):
    directory = tmp_path / "checkpoints"
    with pytest.raises(KeyboardInterrupt):
        run(**at_step(0, press_ctrl_c), checkpoint=directory)
    assert not directory.exists()


def test_there_is_a_checkpoint_after_the_first_step(tmp_path):
    found = []
    look = at_step(10, lambda: found.extend(path.name for path in tmp_path.glob("*.npz")))
    run(**look, checkpoint=tmp_path)
    assert found == ["checkpoint-000000000001.npz"]


def test_a_callback_that_was_interrupted_is_called_again(undisturbed, tmp_path):
    seen, presses = [], [press_ctrl_c]

    def callback(state):
        if state.step == 30 and presses:
            presses.pop()()
        seen.append(int(state.step))

    options = {"callback": callback, "metrics_every": 10, "checkpoint": tmp_path}
    with pytest.warns(nvgd.RunStoppedWarning):
        run(**options)
    assert np.array_equal(run(**options).particles, undisturbed.particles)
    assert seen == list(range(0, 61, 10))


def test_ctrl_c_is_no_divergence():
    with pytest.warns(nvgd.RunStoppedWarning):
        stopped = run(**at_step(30, press_ctrl_c))
    diagnosis = stopped.diagnose()
    assert diagnosis.verdict != "diverged"
    assert stopped.status in diagnosis.cautions
    assert diagnosis.checks


def test_the_disk_is_full_when_ctrl_c_comes(tmp_path):
    """The status promises nothing that is not there."""
    with small_files() as limit:
        actions = at_step(30, lambda: (limit(), press_ctrl_c()))
        with pytest.warns(nvgd.CheckpointWarning), pytest.warns(nvgd.RunStoppedWarning):
            stopped = run(**actions, checkpoint=tmp_path)
    assert "resumes" not in stopped.status


def test_two_runs_with_one_directory_of_checkpoints(undisturbed, tmp_path):
    refused = []

    def second_run():
        with pytest.raises(nvgd.InputError, match="checkpoint is in use by another run") as caught:
            run(checkpoint=tmp_path)
        refused.append(str(caught.value))

    first = run(**at_step(30, second_run), checkpoint=tmp_path)
    assert np.array_equal(first.particles, undisturbed.particles)
    assert len(refused) == 1
    assert "\n" not in refused[0]
    assert all(path.suffix == ".npz" for path in tmp_path.iterdir())


# A flow with corrections, at a fraction of the price of `NVGD()`.
def corrected(step_size):
    return nvgd.ParticleFlow(
        coordinates.Diagonal(), directions.Kernel(), movers.Euler(step_size), corrected=True
    )


CHAINED = {"num_particles": 30, "num_steps": 700, "progress": False}


def test_ctrl_c_in_the_corrections_returns_their_draws_so_far(tmp_path):
    flow, draws = corrected(0.3), []
    whole = nvgd.sample(TARGET, flow, **CHAINED)
    for step in (450, 650):
        options = {**CHAINED, **at_step(step, press_ctrl_c), "checkpoint": tmp_path / str(step)}
        with pytest.warns(nvgd.RunStoppedWarning, match=f"Ctrl-C after step {step} of 700"):
            stopped = nvgd.sample(TARGET, flow, **options)
        assert stopped.stages[-1] == ("corrections", step)
        draws.append(stopped.draws["x"].shape)
        again = nvgd.sample(TARGET, flow, **{**options, "callback": None})
        assert np.array_equal(again.particles, whole.particles)
        assert np.array_equal(again.draws["x"], whole.draws["x"])
    # While the corrections adapt they keep no draws.
    assert draws[0] == (1, 30, 2)
    assert draws[1][0] == 30
    assert draws[1][1] > 1


@pytest.mark.parametrize("step", [0, 50])
def test_a_flow_that_fails_hands_its_last_good_particles_to_the_corrections(tmp_path, step):
    flow = corrected(lambda number: jnp.where(number < step, 0.3, jnp.inf))
    why = (
        f"the flow stopped at step {step + 1}: the move made 30 of 30 particles non-finite; the "
        f"corrections began at step {step}: posterior.diagnose"
    )
    with pytest.warns(nvgd.NotConvergedWarning, match=why):
        posterior = nvgd.sample(TARGET, flow, **CHAINED)
    assert posterior.completed
    assert posterior.stages == (("flow", step), ("corrections", 700))
    assert len(posterior.notes) == 1
    assert all(len(values) == 700 for values in posterior.history.values())
    draws = np.asarray(posterior.draws["x"])
    assert np.allclose(draws.std(axis=(0, 1)), 1.0, atol=0.15)
    # The diagnosis repeats it, and a file keeps it.
    assert posterior.notes[0] in posterior.diagnose().cautions
    posterior.save(tmp_path / "run.npz")
    assert nvgd.load(tmp_path / "run.npz").notes == posterior.notes


def test_a_flow_that_leaves_the_support_hands_over_too():
    """Beyond a radius, the gradient is NaN; the flow's steps are too long to stay within."""

    def log_density(x):
        return -0.5 * jnp.sum(x**2) + 0.0 * jnp.sqrt(16.0 - jnp.sum(x**2))

    flow = corrected(lambda number: jnp.where(number < 20, 0.3, 1e3))
    why = (
        r"the flow stopped at step \d+: the log density or its gradient is not finite at \d+ of 30"
    )
    with pytest.warns(nvgd.NotConvergedWarning, match=why):
        posterior = nvgd.sample(nvgd.Target(log_density, dim=2), flow, **CHAINED)
    assert posterior.completed
    assert posterior.stages[0].until_step < 40
    assert posterior.stages[1] == ("corrections", 700)
    draws = np.asarray(posterior.draws["x"])
    assert np.all(np.sum(draws**2, axis=2) < 16)
    assert np.allclose(draws.std(axis=(0, 1)), 1.0, atol=0.15)


def test_a_run_whose_flow_failed_resumes(tmp_path):
    flow = corrected(lambda number: jnp.where(number < 50, 0.3, jnp.inf))
    with pytest.warns(nvgd.NotConvergedWarning):
        whole = nvgd.sample(TARGET, flow, **CHAINED)
    options = {**CHAINED, "checkpoint": tmp_path, "checkpoint_every": 100}
    with (
        pytest.warns(nvgd.NotConvergedWarning),
        pytest.warns(nvgd.RunStoppedWarning, match="Ctrl-C after step 300"),
    ):
        nvgd.sample(TARGET, flow, **options, **at_step(300, press_ctrl_c))
    with pytest.warns(nvgd.NotConvergedWarning, match="the flow stopped at step 51"):
        again = nvgd.sample(TARGET, flow, **options)
    assert np.array_equal(again.particles, whole.particles)
    assert np.array_equal(again.draws["x"], whole.draws["x"])
    assert (again.notes, again.stages) == (whole.notes, whole.stages)


def test_an_error_of_the_librarys_own_is_not_blamed_on_the_log_density(monkeypatch):
    """A stage that raises when it is traced, after the first stage has run well."""

    def fail(*arguments, **options):
        raise ValueError("a fault of the stage")

    monkeypatch.setattr("nvgd.exact.corrections.propose", fail)
    with pytest.raises(ValueError, match="a fault of the stage"):
        nvgd.sample(
            lambda x: -0.5 * x @ x,
            nvgd.NVGD(width=4, max_inner_steps=1),
            dim=2,
            num_particles=10,
            num_steps=500,
            progress=False,
        )
