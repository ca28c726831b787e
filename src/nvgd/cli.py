"""`nvgd …` at the command line."""

import dataclasses
import functools
import operator
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg, subcommand

import nvgd
from nvgd import command_line, sample_command
from nvgd.compilation import keep_compiled_programs
from nvgd.errors import InputError
from nvgd.experiments import base, catalogue, demo
from nvgd.experiments.records import CONFIG


@dataclasses.dataclass(frozen=True, kw_only=True)
class All:
    """All experiments, one after the other, each in a directory of its own."""

    out: Path = Path("results")
    """Directory for the experiments' directories."""
    seeds: int | None = None
    """Independent runs of every method; each experiment's own number if omitted."""
    quick: bool = False
    """The same code on a scale that takes a minute or less an experiment."""
    resume: bool = False
    """Continue where an interrupted run stopped; experiments not yet begun are begun."""
    data_dir: Path | None = None
    """Where to find the data; see data/README.md for where it is looked for otherwise."""

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


def _union(choices: dict[str, type]) -> Any:
    kinds = [Annotated[kind, subcommand(name)] for name, kind in choices.items()]
    return functools.reduce(operator.or_, kinds)


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Run an experiment of the paper and draw its figure."""

    experiment: _union({**catalogue.EXPERIMENTS, "all": All})  # pyright: ignore[reportInvalidTypeForm]


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw the figures of a results directory again, from its records."""

    directory: Annotated[Positional[Path], arg(metavar="DIRECTORY")]
    """A directory that `nvgd reproduce` wrote."""


COMMANDS = {
    "sample": sample_command.Sample,
    "demo": demo.Demo,
    "reproduce": Reproduce,
    "plot": Plot,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 if it worked, 2 if the input was wrong, 130 after Ctrl-C.

    141 if nobody reads the output to its end, as in `nvgd plot DIR | head`.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"nvgd {nvgd.__version__}")
        return 0
    try:
        command = command_line.parse(
            _union(COMMANDS),
            arguments,
            program="nvgd",
            description="Neural Variational Gradient Descent. `nvgd --version` prints the version.",
        )
        keep_compiled_programs()
        _run(command)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer would be complained about when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except InputError as error:
        print(f"nvgd: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "nvgd: interrupted; files are whole; `sample` or `reproduce … --resume` again goes on.",
            file=sys.stderr,
        )
        return 130
    return 0


def _run(command: sample_command.Sample | demo.Demo | Reproduce | Plot) -> None:
    match command:
        case sample_command.Sample():
            sample_command.run(command)
        case demo.Demo():
            demo.run(command)
        case Plot():
            base.present(catalogue.from_records(command.directory))
        case Reproduce():
            chosen = command.experiment
            experiments = chosen.experiments() if isinstance(chosen, All) else [chosen]
            # What the last one lacks is said before the first one starts.
            for experiment in experiments:
                base.check(experiment)
            for experiment in experiments:
                base.reproduce(experiment)


if __name__ == "__main__":
    sys.exit(main())
