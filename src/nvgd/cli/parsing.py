"""Command lines from dataclasses: one command per class, one option per field.

A field without a default is a positional argument, shown as `metadata["metavar"]`; a `bool` is a
pair of flags; the docstring below a field is its help. argparse splits the words, converts them and
prints the help; a wrong command line raises `InputError` with one sentence.
"""

import argparse
import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from nvgd._support.errors import InputError

# Placeholder in the help, and name in a sentence, of every type that a field may have.
TYPES = {
    int: ("INT", "a whole number"),
    float: ("FLOAT", "a number"),
    str: ("TEXT", "a text"),
    Path: ("PATH", "a path"),
}


@dataclasses.dataclass(frozen=True)
class Group:
    """Commands to choose from; each is a dataclass or another group."""

    description: str
    commands: Mapping[str, "type | Group"]
    metavar: str = "COMMAND"


def parse(commands: Group, arguments: Sequence[str], *, program: str, version: str) -> Any:
    """The chosen command, an instance of its dataclass.

    `--help` and `--version` print to standard output and end the process with exit code 0.
    """
    root = _Parser(commands, prog=program)
    version_text = f"{program} {version}"
    root.add_argument(
        "--version", action="version", version=version_text, help="show the version and exit"
    )
    namespace, unknown = root.parse_known_args(list(arguments))
    settings = vars(namespace)
    # A subcommand's defaults replace those of the group it is in: this is the innermost parser.
    parser: _Parser = settings.pop("_parser")
    return parser.command(settings, unknown)


class _Parser(argparse.ArgumentParser):
    """The parser of one command, or of a group with all its commands."""

    def __init__(self, spec: "type | Group", *, prog: str, **settings: Any):
        super().__init__(prog=prog, description=_describe(spec), allow_abbrev=False, **settings)
        self.set_defaults(_parser=self)
        self._spec = spec
        self._options: list[str] = []
        if isinstance(spec, Group):
            self.usage = f"{prog} {spec.metavar} …"
            subparsers = self.add_subparsers(metavar=spec.metavar)
            for name, inner in spec.commands.items():
                first = _escaped(_describe(inner).partition("\n\n")[0])
                subparsers.add_parser(name, spec=inner, prog=f"{prog} {name}", help=first)
        else:
            self.usage = f"{prog} [OPTIONS]"
            annotations, docstrings = get_type_hints(spec), _docstrings(spec)
            for field in dataclasses.fields(spec):
                self._add_field(field, annotations[field.name], docstrings.get(field.name, ""))

    def _add_field(self, field: dataclasses.Field, kind: Any, text: str) -> None:
        settings: dict[str, Any] = {"default": argparse.SUPPRESS}
        if kind is bool:
            settings["action"] = argparse.BooleanOptionalAction
        else:
            metavar, settings["type"] = _reader(kind)
            settings["metavar"] = field.metadata.get("metavar", metavar)
            if field.default not in (None, dataclasses.MISSING):
                text = f"{text} (default: {field.default})"
        settings["help"] = _escaped(text)
        if field.default is dataclasses.MISSING:
            self.usage = f"{self.usage} {settings['metavar']}"
            self.add_argument(field.name, **settings)
        else:
            self._options.append(f"--{field.name.replace('_', '-')}")
            self.add_argument(self._options[-1], **settings)

    def error(self, message: str) -> NoReturn:
        """Raise where argparse would print its usage and end the process."""
        raise InputError(f"{message}; `{self.prog} --help` lists what is accepted.")

    def command(self, settings: Mapping[str, Any], unknown: Sequence[str]) -> Any:
        """The command with these settings; `unknown` are the words that no option accepts."""
        if isinstance(self._spec, Group):
            accepted = ", ".join(self._spec.commands)
            self.error(f"argument {self._spec.metavar} is missing (choose from {accepted})")
        if unknown:
            name = unknown[0].partition("=")[0]
            if name in self._options:
                self.error(f"{name} must come after the command, as in `{self.prog} {name}`")
            close = difflib.get_close_matches(name, self._options, n=1)
            advice = f"; perhaps you meant {close[0]}" if close else ""
            self.error(f"unknown argument {unknown[0]!r}{advice}")
        return self._spec(**settings)


def _describe(spec: "type | Group") -> str:
    return spec.description if isinstance(spec, Group) else inspect.getdoc(spec) or ""


def _escaped(text: str) -> str:
    """Text without the placeholders that argparse expands in help texts."""
    return text.replace("%", "%%")


@functools.cache
def _reader(annotation: Any) -> tuple[str, Callable[[str], Any]]:
    """A placeholder for values of a type, and the function that reads one from a word."""
    is_union = get_origin(annotation) in (Union, types.UnionType)
    kinds = get_args(annotation) if is_union else (annotation,)
    placeholders: list[str] = []
    accepted: list[str] = []
    for kind in kinds:
        if get_origin(kind) is Literal:
            placeholders += get_args(kind)
            accepted += map(repr, get_args(kind))
        elif kind is not types.NoneType:  # the value of an option that is omitted
            placeholders.append(TYPES[kind][0])
            accepted.append(TYPES[kind][1])

    def read(word: str) -> Any:
        for kind in kinds:
            if get_origin(kind) is Literal and word in get_args(kind):
                return word
            if kind in TYPES:
                with suppress(ValueError):
                    return kind(word)
        *others, last = accepted
        choices = f"{', '.join(others)} or {last}" if others else last
        raise argparse.ArgumentTypeError(f"must be {choices}, got {word!r}")

    return "|".join(placeholders), read


def _docstrings(kind: type) -> dict[str, str]:
    """The docstrings of a dataclass's fields, inherited ones included, each as one line."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if dataclasses.is_dataclass(owner):
            found |= _own_docstrings(owner)
    return found


@functools.cache
def _own_docstrings(kind: type) -> dict[str, str]:
    # Python keeps the docstrings of classes, but those of fields are only in the source.
    try:
        (definition,) = ast.parse(inspect.getsource(kind)).body
    except OSError:  # installed without source: the help has no texts, and the command works
        return {}
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for pair in itertools.pairwise(definition.body):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found
