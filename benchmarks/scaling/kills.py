"""A run that is killed many times ends with the same particles as an uninterrupted one."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import nvgd
from nvgd._support.archives import read_archive
from nvgd.densities import Funnel
from nvgd.running.checkpoints import KIND, PATTERN

ENDLESS = 10**8


def run(num_steps: int, checkpoint: Path | None = None) -> nvgd.Posterior:
    """The paper's NVGD on a funnel, with a checkpoint every five steps."""
    return nvgd.sample(
        nvgd.Target(Funnel(2).log_density, dim=2),
        nvgd.NVGD.paper(),
        num_particles=50,
        num_steps=num_steps,
        checkpoint=checkpoint,
        checkpoint_every=5,
        progress=False,
    )


def checkpoints(directory: Path) -> list[Path]:
    """The checkpoints in a directory, latest last."""
    return sorted(directory.glob(PATTERN))


def measure(num_kills: int = 50, seed: int = 0) -> dict[str, float]:
    """Kill a run at random moments; every checkpoint must be whole afterwards."""
    moments = random.Random(seed)
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "checkpoints"
        directory.mkdir()
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": f"{temporary}/compiled"}
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        num_read = 0
        for _ in range(num_kills):
            before = checkpoints(directory)
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.scaling.kills", directory], env=environment
            )
            while checkpoints(directory) == before and process.poll() is None:
                time.sleep(0.01)
            time.sleep(moments.uniform(0.0, 0.4))
            process.send_signal(signal.SIGKILL)
            process.wait()
            for path in checkpoints(directory):
                read_archive(path, KIND)
                num_read += 1
        reached = int(checkpoints(directory)[-1].stem.split("-")[1])
        resumed, alone = run(reached + 20, directory), run(reached + 20)
        return {
            "kills": num_kills,
            "steps": reached + 20,
            "checkpoints_read": num_read,
            "left_over": len(list(directory.glob(".*"))),
            "equal": bool(np.array_equal(resumed.particles, alone.particles)),
        }


if __name__ == "__main__":
    run(ENDLESS, Path(sys.argv[1]))
