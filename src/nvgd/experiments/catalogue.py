"""All experiments by name."""

import dataclasses
from pathlib import Path

from nvgd.errors import InputError
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
    """The experiment, with its settings, whose records lie in `directory`."""
    config, _, _ = read(directory)
    kind = EXPERIMENTS.get(config["experiment"])
    if kind is None:
        raise InputError(
            f"{str(directory)!r} holds an unknown experiment, {config['experiment']!r}."
        )
    known = {field.name for field in dataclasses.fields(kind)}
    settings = config["settings"]
    if not isinstance(settings, dict) or not set(settings) <= known:
        raise InputError(f"the settings in {str(directory)!r} are not those of {kind.name!r}.")
    return kind(**{**settings, "out": directory})
