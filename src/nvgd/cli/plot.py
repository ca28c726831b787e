"""`nvgd plot`: the figures of a results directory, from the files in it."""

import dataclasses
from pathlib import Path

from nvgd._support.errors import InputError
from nvgd._support.files import output_directory, write_atomically
from nvgd.experiments import base, catalogue
from nvgd.experiments.records import CONFIG
from nvgd.posterior.files import load
from nvgd.posterior.posterior import Posterior

# Files and folders of `nvgd sample`.
POSTERIOR, CHECKPOINTS = "posterior.npz", "checkpoints"


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw the figures of a results directory again, without running anything."""

    directory: Path = dataclasses.field(metadata={"metavar": "DIRECTORY"})
    """A directory that `nvgd sample` or `nvgd reproduce` wrote."""


def run_plot(command: Plot) -> None:
    """Draw the figures of an experiment's records or of a stored posterior."""
    directory = command.directory
    if (directory / CONFIG).exists():
        base.present(catalogue.from_records(directory))
    elif (directory / POSTERIOR).exists():
        posterior = load(directory / POSTERIOR)
        paths = write_figures(posterior, output_directory(directory, "directory"))
        print("Wrote " + ", ".join(str(path) for path in paths) + ".")
    elif (directory / CHECKPOINTS).exists():
        raise InputError(
            f"{str(directory)!r} holds an unfinished run: repeat its `nvgd sample` command, which "
            "continues the run and draws the figures."
        )
    else:
        raise InputError(
            f"{str(directory)!r} is not a results directory of `nvgd sample` or `nvgd reproduce`: "
            f"it has neither {POSTERIOR} nor {CONFIG}."
        )


def write_figures(posterior: Posterior, directory: Path) -> list[Path]:
    """Write the three figures of a posterior and return their paths."""
    paths = []
    for kind in ("marginals", "pairs", "history"):
        figure = posterior.plot(kind)
        paths.append(directory / f"{kind}.png")
        write_atomically(paths[-1], lambda path, figure=figure: figure.savefig(path, dpi=150))
    return paths
