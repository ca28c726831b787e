"""All experiments by name."""

import dataclasses
from pathlib import Path
from typing import Any

from nvgd._support.errors import InputError
from nvgd.experiments.base import Experiment
from nvgd.experiments.covertype import Covertype
from nvgd.experiments.funnel import FunnelExperiment
from nvgd.experiments.mnist import Mnist
from nvgd.experiments.records import read
from nvgd.experiments.stein import Stein
from nvgd.experiments.sweep import Sweep

EXPERIMENTS: dict[str, type[Experiment]] = {
    kind.name: kind for kind in (Stein, FunnelExperiment, Sweep, Covertype, Mnist)
}


def from_records(directory: Path) -> Experiment:
    """The experiment whose records are in `directory`, with its settings."""
    config, _, _ = read(directory)
    kind = EXPERIMENTS.get(config["experiment"])
    if kind is None:
        raise InputError(
            f"{str(directory)!r} holds an unknown experiment, {config['experiment']!r}."
        )
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    settings = config["settings"]
    if not all(
        name in defaults and _is_alike(value, defaults[name]) for name, value in settings.items()
    ):
        raise InputError(f"the settings in {str(directory)!r} are not those of {kind.name!r}.")
    return kind(**{**settings, "out": directory})


def _is_alike(value: Any, default: Any) -> bool:
    """Whether a value from a file has the type of a setting's default."""
    if isinstance(default, bool | str) or default is None:
        return isinstance(value, type(default))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (isinstance(default, float) or isinstance(value, int))
