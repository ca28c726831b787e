"""The command `nvgd`."""

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from nvgd._support.errors import InputError
from nvgd._support.program_cache import keep_compiled_programs
from nvgd._support.version import __version__
from nvgd.cli.parsing import Group, parse
from nvgd.cli.plot import Plot, run_plot
from nvgd.cli.sample import Sample, run_sample
from nvgd.experiments import base, catalogue, demo
from nvgd.experiments.records import CONFIG


@dataclasses.dataclass(frozen=True, kw_only=True)
class All:
    """All experiments, one after the other, each in its own directory."""

    out: Path = Path("results")
    """Directory for the experiments' directories."""
    seeds: int | None = None
    """Independent runs per method; each experiment's own default if omitted."""
    quick: bool = False
    """Run the same code at a smaller scale, which takes a minute or less per experiment."""
    resume: bool = False
    """Continue an interrupted run; experiments without records start from the beginning."""
    data_dir: Path | None = None
    """Directory with the data; data/README.md lists the places that are searched if omitted."""

    def experiments(self) -> list[base.Experiment]:
        """Every experiment with these settings."""
        common: dict[str, Any] = {"quick": self.quick, "data_dir": self.data_dir}
        if self.seeds is not None:
            common["seeds"] = self.seeds
        chosen = []
        for name, kind in catalogue.EXPERIMENTS.items():
            directory = self.out / name
            resume = self.resume and (directory / CONFIG).exists()
            known = {field.name for field in dataclasses.fields(kind)}
            options = {name: value for name, value in common.items() if name in known}
            chosen.append(kind(out=directory, resume=resume, **options))
        return chosen


REPRODUCE = Group(
    "Run an experiment of the paper, print its table and draw its figures.",
    {**catalogue.EXPERIMENTS, "all": All},
    metavar="EXPERIMENT",
)
COMMANDS = Group(
    "Neural Variational Gradient Descent.",
    {"sample": Sample, "demo": demo.Demo, "reproduce": REPRODUCE, "plot": Plot},
)


# Exit code after Ctrl-C.
INTERRUPTED = 130


def program() -> NoReturn:
    """The program `nvgd`: run one command, and exit with its code."""
    code = main()
    if code == INTERRUPTED:
        # If Ctrl-C came while XLA compiled, an orderly exit of the interpreter crashes.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: success; 1: a file could not be written; 2: wrong input; 130: Ctrl-C; 141: standard output
    was closed early, as in `nvgd plot DIRECTORY | head`. `--help` and `--version` raise
    `SystemExit(0)` after printing.
    """
    try:
        command = parse(
            COMMANDS,
            sys.argv[1:] if arguments is None else arguments,
            program="nvgd",
            version=__version__,
        )
        keep_compiled_programs()
        _run(command)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes standard output at exit and would report the closed pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except InputError as error:
        print(f"nvgd: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        # `nvgd sample` says more, because it knows whether there is a checkpoint.
        default = (
            "interrupted; all files are complete, and `nvgd reproduce … --resume` continues an "
            "experiment."
        )
        print(f"nvgd: {str(error) or default}", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        # Every file is written as a whole or not at all.
        what = "a file" if error.filename is None else repr(str(error.filename))
        print(
            f"nvgd: {what} could not be written: {error.strerror or error}. Other files are "
            "complete: fix the cause, and run the same command again.",
            file=sys.stderr,
        )
        return 1
    return 0


def _run(command: Sample | demo.Demo | Plot | All | base.Experiment) -> None:
    match command:
        case Sample():
            run_sample(command)
        case demo.Demo():
            demo.run(command)
        case Plot():
            run_plot(command)
        case All() | base.Experiment():
            experiments = command.experiments() if isinstance(command, All) else [command]
            # Missing data or an occupied directory is reported before the first experiment starts.
            for experiment in experiments:
                base.check(experiment)
            for experiment in experiments:
                base.reproduce(experiment)
