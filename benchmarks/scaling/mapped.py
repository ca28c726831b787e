"""Data larger than memory: a sparse file of 24 GB behind a memory map."""

import tempfile
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import nvgd
from benchmarks.machine import peak_gigabytes
from nvgd.targets import host_data as library_data

COLUMNS = 50
GIGABYTES = 24
# Blocks of the file that are written; the rest reads as zeros and takes no space on the disk.
WRITTEN = 64


class DistantRows(np.memmap):
    """Rows on a disk with a latency of 0.01 s per batch, as over a network."""

    LATENCY = 0.01

    def __getitem__(self, rows):
        if isinstance(rows, np.ndarray):
            time.sleep(self.LATENCY * len(rows))
        return super().__getitem__(rows)


def sparse_rows(path: Path, gigabytes: float = GIGABYTES) -> np.memmap:
    """A file of this logical size, in which 64 blocks of 1000 rows have been written."""
    num_rows = int(gigabytes * 2**30) // (4 * COLUMNS)
    with path.open("wb") as file:
        file.truncate(num_rows * 4 * COLUMNS)
    rows = np.memmap(path, np.float32, "r+", shape=(num_rows, COLUMNS))
    generator = np.random.default_rng(0)
    for first in np.linspace(0, num_rows - 1000, WRITTEN).astype(int):
        rows[first : first + 1000] = generator.normal(size=(1000, COLUMNS))
    rows.flush()
    return np.memmap(path, np.float32, "r", shape=(num_rows, COLUMNS))


def target(rows: np.memmap, batch_size: int) -> nvgd.Target:
    """The posterior of the mean of the rows."""
    return nvgd.Target(
        lambda x: -0.5 * jnp.sum(x**2),
        dim=COLUMNS,
        log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2),
        data=rows,
        batch_size=batch_size,
    )


def measure(steps: int = 200, batch_size: int = 2048, num_particles: int = 100) -> dict[str, float]:
    """Memory of a run, and its time with reading ahead, without it, and with data in memory.

    Holes of the file cost processor time and no latency, which reading ahead cannot hide: it is
    measured with a disk that has latency.
    """
    with tempfile.TemporaryDirectory() as directory:
        rows = sparse_rows(Path(directory) / "rows")
        on_disk = (Path(directory) / "rows").stat().st_blocks * 512 / 2**30
        mapped = target(rows, batch_size)
        flow = nvgd.SGLD(1e-10)

        def seconds(run_target: nvgd.Target) -> float:
            options = {"num_particles": num_particles, "progress": False}
            nvgd.sample(run_target, flow, num_steps=20, **options)
            started = time.perf_counter()
            nvgd.sample(run_target, flow, num_steps=steps, **options)
            return time.perf_counter() - started

        from_disk = seconds(mapped)
        resident = peak_gigabytes()
        distant = target(
            DistantRows(Path(directory) / "rows", np.float32, "r", shape=rows.shape), batch_size
        )
        with_ahead = seconds(distant)
        read_ahead = library_data._MappedBatches.read_ahead
        library_data._MappedBatches.read_ahead = lambda *_: None
        try:
            without = seconds(distant)
        finally:
            library_data._MappedBatches.read_ahead = read_ahead
        in_memory = seconds(target(np.asarray(rows[: 4 * batch_size]), batch_size))
        return {
            "logical": rows.nbytes / 2**30,
            "on_disk": on_disk,
            "num_rows": len(rows),
            "resident": resident,
            "with_ahead": with_ahead,
            "without": without,
            "in_memory": in_memory,
            "from_disk": from_disk,
        }
