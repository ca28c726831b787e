"""Interrupted runs go on to the same end; what is damaged or foreign is refused."""

import os
import signal
import subprocess
import sys
from datetime import timedelta

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd._support.archives import arrays_to_tree, read_archive, tree_to_arrays, write_archive

ROWS = np.linspace(-1.0, 3.0, 50).astype(np.float32)
TARGET = nvgd.Target(
    lambda x: -0.5 * x @ x,
    dim=2,
    log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2),
    data=ROWS,
    batch_size=8,
)
FLOW = nvgd.NVGD.paper(1e-3, learning_rate=1e-2, max_inner_steps=3, width=8)


def run(directory=None, target=TARGET, flow=FLOW, **options):
    options = {"num_particles": 12, "num_steps": 40, "thin": 9, "metrics_every": 7, **options}
    options = {"metrics": {"mean": jnp.mean}, "progress": False, **options}
    return nvgd.sample(target, flow, checkpoint=directory, checkpoint_every=10, **options)


class Interrupted(Exception):
    pass


def interrupt_at(step):
    def callback(state):
        if state.step >= step:
            raise Interrupted

    return callback


@pytest.fixture(scope="module")
def uninterrupted():
    return run()


def same(first, second):
    pairs = [
        (first.particles, second.particles),
        *((first.history[name], second.history[name]) for name in first.history),
        *((first.metrics[name], second.metrics[name]) for name in first.metrics),
        *zip(jax.tree.leaves(first.state), jax.tree.leaves(second.state), strict=True),
    ]
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


@pytest.fixture
def directory(tmp_path):
    """Checkpoints of a run that was interrupted after step 28."""
    with pytest.raises(Interrupted):
        run(tmp_path, callback=interrupt_at(28))
    assert steps(tmp_path) == [10, 20]
    return tmp_path


def steps(directory):
    return sorted(int(path.stem.removeprefix("checkpoint-")) for path in directory.iterdir())


@pytest.mark.xdist_group("checkpoints")
def test_an_interrupted_run_ends_as_if_nothing_had_happened(uninterrupted, directory):
    assert same(run(directory), uninterrupted)
    assert steps(directory) == [30, 40]
    # Finished runs are read back, or made longer.
    assert same(run(directory), uninterrupted)
    longer, at_once = run(directory, num_steps=50), run(num_steps=50)
    assert np.array_equal(longer.particles, at_once.particles)
    assert np.array_equal(longer.history["step_norm"], at_once.history["step_norm"])


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_checkpoints import run

def callback(state):
    if state.step >= 28:
        os.kill(os.getpid(), signal.SIGKILL)

run(sys.argv[2], callback=callback)
"""


@pytest.mark.xdist_group("checkpoints")
def test_kill_9(uninterrupted, tmp_path):
    here = os.path.dirname(__file__)
    killed = subprocess.run([sys.executable, "-c", KILLED, here, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    # As if it had been killed while it wrote.
    (tmp_path / ".nvgd-half.npz").write_bytes(b"half")
    assert same(run(tmp_path), uninterrupted)
    assert not list(tmp_path.glob(".*"))


def flip_bytes(path):
    content = bytearray(path.read_bytes())
    # Somewhere in the arrays, whatever lies between them.
    for position in range(200, len(content), 211):
        content[position] ^= 255
    path.write_bytes(content)


def cut_off(path):
    path.write_bytes(path.read_bytes()[:1000])


def empty(path):
    path.write_bytes(b"")


@pytest.mark.xdist_group("checkpoints")
@pytest.mark.parametrize("damage", [flip_bytes, cut_off, empty])
def test_the_one_before_a_damaged_checkpoint_is_used(uninterrupted, directory, damage):
    damage(directory / "checkpoint-000000000020.npz")
    with pytest.warns(
        nvgd.CheckpointWarning, match="000020.npz' is damaged .*earlier checkpoint at step 10"
    ):
        assert same(run(directory), uninterrupted)
    for path in directory.iterdir():
        damage(path)
    with pytest.raises(nvgd.InputError, match=r"is damaged .* No other checkpoint can be used"):
        run(directory)


def other_target(x):
    return -jnp.sum(x**4)


@pytest.mark.xdist_group("checkpoints")
@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"flow": nvgd.NVGD.paper(2e-3, learning_rate=1e-2, max_inner_steps=3, width=8)}, "flow"),
        ({"seed": 1}, "seed"),
        ({"thin": None}, "thin"),
        ({"metrics": {"other": jnp.mean}}, "metrics"),
        ({"num_particles": 13}, "starting particles"),
        ({"target": nvgd.Target(other_target, dim=2)}, "starting log densities"),
    ],
)
def test_checkpoints_of_another_run_are_refused(directory, change, difference):
    with pytest.raises(
        nvgd.InputError, match=f"another run: it differs in .*{difference}"
    ) as error:
        run(directory, **change)
    assert "\n" not in str(error.value)
    assert steps(directory) == [10, 20]


@pytest.mark.xdist_group("checkpoints")
def test_fewer_steps_than_were_taken_are_refused(directory):
    with pytest.raises(nvgd.InputError, match=r"num_steps is 9, but the run .* is at step 20"):
        run(directory, num_steps=9)


@pytest.mark.xdist_group("checkpoints")
def test_checkpoints_by_time(tmp_path):
    options = {"num_particles": 12, "num_steps": 40, "thin": 9, "progress": False}
    often = timedelta(microseconds=1)
    nvgd.sample(TARGET, FLOW, checkpoint=tmp_path, checkpoint_every=often, **options)
    assert steps(tmp_path)[-1] == 40
    with pytest.raises(nvgd.InputError, match="checkpoint_every must be a positive duration"):
        nvgd.sample(TARGET, checkpoint=tmp_path, checkpoint_every=timedelta(0))
    occupied = tmp_path / "file"
    occupied.write_text("mine")
    with pytest.raises(nvgd.InputError, match="checkpoint must be a directory that can be"):
        nvgd.sample(TARGET, checkpoint=occupied)


def test_archives_keep_every_kind_of_array(tmp_path):
    tree = {
        "key": jax.random.split(jax.random.key(3), 2),
        "half": jnp.arange(5, dtype=jnp.bfloat16),
        "flags": jnp.array([True, False]),
        "empty": jnp.zeros((0, 3)),
    }
    path = tmp_path / "archive.npz"
    write_archive(path, "test", {"π": [1, None]}, tree_to_arrays(tree, "tree"))
    facts, arrays = read_archive(path, "test")
    assert facts == {"π": [1, None]}
    restored = arrays_to_tree(tree, arrays, "tree")
    for before, after in zip(jax.tree.leaves(tree), jax.tree.leaves(restored), strict=True):
        assert before.dtype == after.dtype
        assert jnp.array_equal(before, after)
    with pytest.raises(nvgd.InputError, match="holds a test of version 1; expected a checkpoint"):
        read_archive(path, "checkpoint")
    with pytest.raises(nvgd.InputError, match="where bool"):
        arrays_to_tree({**tree, "flags": jnp.zeros(3, bool)}, arrays, "tree")
