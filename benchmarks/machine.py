"""On what a benchmark ran, in general terms."""

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path


def described() -> dict[str, str]:
    """Processor cores, versions and date; nothing that names a machine."""
    packages = ("jax", "equinox", "optax", "numpy", "blackjax", "numpyro")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, no GPU",
        "python": platform.python_version(),
        **versions,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def peak_gigabytes() -> float:
    """The most that this process has had in memory.

    Not `resource.getrusage`: a process that another one has started inherits its peak there.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**20
