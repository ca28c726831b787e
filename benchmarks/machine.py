"""The machine that a benchmark ran on, in general terms."""

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path


def described() -> dict[str, str]:
    """Processor cores, versions and date, without the name of the machine."""
    packages = ("jax", "equinox", "optax", "numpy", "blackjax", "numpyro")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, no GPU",
        "python": platform.python_version(),
        **versions,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def peak_gigabytes() -> float:
    """Peak memory of this process.

    Not from `resource.getrusage`, where a process inherits the peak of the one that started it.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**20
