"""On what a benchmark ran, in general terms."""

import datetime
import importlib.metadata
import os
import platform


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
