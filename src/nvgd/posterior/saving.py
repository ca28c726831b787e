"""Writing posteriors to files."""

import os
from typing import Any

import numpy as np

from nvgd._support.archives import archive_path, write_archive

KIND = "posterior"
# Contents of a file: plain values, and groups of arrays.
FACTS = ("status", "num_kept", "method", "num_steps", "notes", "density_error")
GROUPS = ("draws", "history", "metrics")


def save(posterior: Any, path: str | os.PathLike[str]) -> None:
    """See `Posterior.save`.

    Arguments:
        posterior: a `Posterior`; not imported here, because its module imports this one.
        path: the file.
    """
    dims, coords = posterior.labels
    facts = {
        **{name: getattr(posterior, name) for name in FACTS},
        "stages": [list(stage) for stage in posterior.stages],
        "dims": {name: list(axes) for name, axes in dims.items()},
        "deterministics": list(posterior.deterministics),
        "coords": {name: np.asarray(values).tolist() for name, values in coords.items()},
    }
    arrays = {"particles": np.asarray(posterior.particles)}
    if posterior.has_scores:
        arrays["log_densities"], arrays["scores"] = posterior.log_densities_and_scores
    groups = {group: getattr(posterior, group) for group in GROUPS}
    if posterior.chains is not None:
        groups["chains"] = posterior.chains._asdict()
    for group, values in groups.items():
        arrays |= {f"{group}/{name}": np.asarray(value) for name, value in values.items()}
    write_archive(archive_path(path), KIND, facts, arrays)
