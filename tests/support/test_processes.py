"""Runs of several processes on this host: one answer, written once, whoever is killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nvgd
from nvgd._support.processes import join

MODEL = """
import atexit, os
from pathlib import Path
import jax.numpy as jnp
import numpy as np
import nvgd

HERE = Path(__file__).parent


class Counted(np.memmap):
    num_read = 0

    def __getitem__(self, rows):
        if isinstance(rows, np.ndarray):
            Counted.num_read += rows.size
        return super().__getitem__(rows)


rows = Counted(HERE / "rows", np.float32, "r", shape=(640, 2))
target = nvgd.Target(
    lambda x: -0.5 * jnp.sum(x**2),
    dim=2,
    log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2),
    data=rows,
    batch_size=32,
)
count = HERE / f"read-by-{os.getpid()}"
atexit.register(lambda: count.write_text(str(Counted.num_read)))
"""

COMMAND = [sys.executable, "-m", "nvgd", "sample"]

pytestmark = pytest.mark.xdist_group("processes")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("processes")
    rows = np.random.default_rng(0).normal(size=(640, 2)).astype(np.float32)
    rows.tofile(directory / "rows")
    (directory / "model.py").write_text(MODEL)
    return directory


def start(model, out, num_processes, *, steps=60, **options):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "out": model / out,
        "method": "svgd",
        "step-size": 1e-3,
        "num-particles": 64,
        "num-steps": steps,
        **options,
    }
    words = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    processes = []
    for number in range(num_processes):
        place = [] if num_processes == 1 else ["--coordinator", f"127.0.0.1:{port}"]
        place += ["--num-processes", str(num_processes), "--process-id", str(number)] * bool(place)
        processes.append(
            subprocess.Popen(
                [*COMMAND, f"{model / 'model.py'}:target", *words, *place],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return processes


def end(processes, timeout=180):
    return [(*process.communicate(timeout=timeout), process.returncode) for process in processes]


@pytest.fixture(scope="module")
def alone(model):
    ((_, errors, code),) = end(start(model, "alone", 1))
    assert code == 0, errors
    return nvgd.load(model / "alone" / "posterior.npz").particles


def test_several_processes_give_the_answer_of_one_and_write_it_once(model, alone):
    """Four processes, which split particles and rows."""
    processes = start(model, "of-4", 4, **{"data-devices": 2})
    results = end(processes)
    assert [code for _, _, code in results] == [0] * 4, results
    together = nvgd.load(model / "of-4" / "posterior.npz").particles
    assert np.allclose(together, alone, atol=1e-4)
    # Only the first one speaks, apart from what connects them.
    assert "Results written to" in results[0][0]
    lines = [line for output, _, _ in results[1:] for line in output.splitlines()]
    assert all(line.startswith("[Gloo]") for line in lines)
    # Each has read half of every batch of its steps; what is read ahead at the end counts, too.
    reads = [int((model / f"read-by-{process.pid}").read_text()) for process in processes]
    own_share = 60 * 32 // 2
    assert max(reads[1:]) < 1.6 * own_share


def test_if_one_is_killed_the_others_say_so_and_any_number_goes_on(model, alone):
    options = {"checkpoint-every": 10, "num-particles": 64}
    processes = start(model, "killed", 2, steps=200_000, **options)
    checkpoints = model / "killed" / "checkpoints"
    deadline = time.monotonic() + 120
    while len(list(checkpoints.glob("*.npz"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    processes[1].send_signal(signal.SIGKILL)
    killed_at = time.monotonic()
    _, errors, code = end(processes[:1], timeout=60)[0]
    processes[1].communicate()
    assert time.monotonic() - killed_at < 60
    assert code == 1, errors
    assert "has lost another one and ends" in errors
    assert "goes on from its last checkpoint" in errors
    # A run of that length, from the start and from where it was.
    reached = max(int(path.stem.split("-")[1]) for path in checkpoints.glob("*.npz"))
    steps = reached + 50
    ((_, errors, code),) = end(start(model, "killed", 1, steps=steps, **options))
    assert code == 0, errors
    ((_, errors, code),) = end(start(model, "undisturbed", 1, steps=steps, **options))
    assert code == 0, errors
    found, expected = (
        nvgd.load(model / name / "posterior.npz").particles for name in ("killed", "undisturbed")
    )
    assert np.allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("127.0.0.1:1", None, 0), "missing: --num-processes"),
        (("127.0.0.1", 2, 0), "must be HOST:PORT"),
        (("here:99999", 2, 0), "port below 65536"),
        (("here:1234", 2, 2), "got 2 of 2"),
    ],
)
def test_what_does_not_make_a_run_is_refused(arguments, message):
    with pytest.raises(nvgd.InputError, match=message):
        join(*arguments)


def test_files_for_clusters_start_the_processes_they_say(tmp_path):
    """The SLURM script, with stand-ins for its two commands, and the Kubernetes manifest."""
    root = Path(__file__).parents[2] / "examples"
    tools = tmp_path / "bin"
    tools.mkdir()
    log = tmp_path / "log"
    stand_ins = {  # The second host comes late: a reader that stops at the first breaks the pipe.
        "scontrol": "echo node-a; sleep 0.2; echo node-b",
        "srun": 'for i in 0 1; do SLURM_PROCID=$i SLURM_NTASKS=2 "$@"; done',
        "nvgd": f'echo "$@" >> {log}',
    }
    for name, body in stand_ins.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "node-[a-b]"}
    environment |= {"SLURM_NTASKS": "2", "SLURM_JOB_ID": "1234"}
    subprocess.run(["bash", root / "slurm.sh"], env=environment, check=True, cwd=tmp_path)
    lines = log.read_text().splitlines()
    assert len(lines) == 2
    for number, line in enumerate(lines):
        assert "--coordinator node-a:" in line
        assert f"--num-processes 2 --process-id {number}" in line
    manifest = (root / "kubernetes.yaml").read_text()
    assert "completionMode: Indexed" in manifest
    assert "--process-id $(JOB_COMPLETION_INDEX)" in manifest
