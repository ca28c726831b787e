"""Eight virtual devices give one device's answer, and tell each other little."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from nvgd._support.devices import Placement
from nvgd._support.particle_groups import by_group, num_groups

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("devices")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    result = subprocess.run(
        [
            sys.executable,
            ROOT / "tests" / "helpers" / "eight_devices.py",
            tmp_path_factory.mktemp("devices"),
        ],
        env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", ["ula", "thinned"])
def test_bits_agree_where_nothing_is_summed_in_another_order(found, name):
    assert found[name]["equal"]


@pytest.mark.parametrize("name", ["svgd", "diagonal", "rows", "batches", "mapped"])
def test_answers_agree_within_rounding(found, name):
    assert found[name]["distance"] < 1e-4


def test_a_run_goes_on_with_another_number_of_devices(found):
    assert found["resumed"] < 1e-5


def test_what_devices_tell_each_other_does_not_grow_with_the_particles(found):
    calls, sizes = found["paper traffic"]
    assert set(calls) == {"all-reduce"}
    # One gradient of the witness for each training step, and a few numbers.
    assert 0 < sizes["all-reduce"] < 8 * 5 * 4 * (2 * 32 + 32 + 32 * 32 + 32 + 32 * 2 + 2)
    # Ranks and rebirths of 8192 particles move a few hundred numbers.
    assert 0 < sum(found["diagonal traffic"][1].values()) < 8192 * 2 * 4 / 3


def test_kernels_send_particles_round(found):
    _, sizes = found["svgd traffic"]
    # Positions, scores and their products, to each of the other devices, and no more.
    assert 0.99 < sizes["collective-permute"] / (8 * 8192 / 8 * 5 * 4) < 1.2
    assert sizes["all-gather"] < 2000 * 2 * 4 * 1.1


def test_what_cannot_be_split_is_refused(found):
    uneven, many, word, foreign = found["refused"]
    assert "multiple of the 8 devices" in uneven
    assert "needs 99 of them, but there are 8" in many
    assert "must be a number, a list of jax.devices() or a mesh" in word
    assert "nvgd.device_mesh() makes one" in foreign


def test_one_device_needs_no_mesh():
    assert Placement.of(None) == Placement()


@pytest.mark.parametrize(
    ("num_particles", "number"), [(100, 1), (511, 1), (512, 2), (1000, 2), (2048, 8), (10**6, 64)]
)
def test_groups_depend_on_the_particles_alone(num_particles, number):
    assert num_groups(num_particles) == number
    assert num_particles % number == 0


def test_each_group_is_by_itself():
    values = jnp.arange(1024.0)
    reversed_ = by_group(lambda group: group[::-1], values)
    assert np.array_equal(reversed_[:256], values[:256][::-1])
    assert np.array_equal(reversed_[-256:], values[-256:][::-1])
