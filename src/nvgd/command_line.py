"""The words of a command line as a command's settings; wrong ones are answered with a sentence."""

import contextlib
import io
import re
import sys
from collections.abc import Sequence
from typing import Any

import tyro
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes

from nvgd.errors import InputError

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
FRAME = "─-│|+╭╮╰╯ "
# The parser's wording, and what a person makes more of.
WORDINGS = [
    (r" \(applied to [^)]*\)", ""),
    (r"^Expected one of \{(.*)\}", r"a command is missing; accepted: \1"),
    (r"\. Expected", ", expected"),
    (
        r"^Error parsing (\S+): invalid literal for int\(\) with base 10:",
        r"\1 must be a whole number, got",
    ),
    (r"^Error parsing (\S+): could not convert string to float:", r"\1 must be a number, got"),
    (r"^Error parsing (\S+): ", r"\1: "),
    (r"^(Missing from [^:]*: \S+) (.*?)\.? \(required\)", r"\1 (\2)"),
]


def parse(kind: Any, arguments: Sequence[str], *, program: str, description: str) -> Any:
    """The command that `arguments` ask for; `InputError` if there is none such.

    `--help` prints and ends the process, as everywhere.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            command = tyro.cli(
                kind,
                prog=program,
                description=description,
                args=arguments,
                config=(OmitArgPrefixes, OmitSubcommandPrefixes),
            )
    except SystemExit as end:
        if not end.code:
            raise
        message = _refusal(end) or _sentence(said.getvalue(), arguments, program)
        raise InputError(message) from None
    sys.stderr.write(said.getvalue())
    return command


def _refusal(end: SystemExit) -> str | None:
    """What the settings' own checks said, if it was they that ended the parser."""
    error: BaseException | None = end
    while error is not None:
        if isinstance(error, InputError):
            return str(error)
        error = error.__context__
    return None


def _sentence(said: str, arguments: Sequence[str], program: str) -> str:
    """The parser's frame of several sections, as one sentence."""
    sections: list[list[str]] = [[]]
    lines = COLOURS.sub("", said).splitlines()
    # The frame's title says less than its contents.
    for line in lines[1:] or lines:
        # A rule begins a section; so does an empty line, after which the parser explains itself.
        text = "" if set(line) <= set(FRAME) else line.strip("│|").strip()
        if text:
            sections[-1].append(text)
        elif sections[-1]:
            sections.append([])
    sections = [section for section in sections if section] or [["wrong words"]]
    problem = " ".join(" ".join(sections[0]).split())
    # The command whose help says more: the one that the words went to, or the one the parser names.
    commands = re.findall(rf"\(applied to ({program}[^)]*)\)", problem)
    commands += re.findall(rf"({program}[\w ]*) --help", " ".join(sections[-1]))
    for pattern, better in WORDINGS:
        problem = re.sub(pattern, better, problem)
    parts = [problem[:1].lower() + problem[1:].rstrip(".")]
    for section in sections[1:]:
        if section[0].startswith("Available subcommands:"):
            parts.append(" ".join(section).replace("Available subcommands:", "accepted:"))
        if section[0].startswith("Perhaps you meant:"):
            names = [line.split()[0].split(",")[0] for line in section if line.startswith("--")]
            names = [name for name in dict.fromkeys(names) if name not in arguments]
            parts += [f"perhaps you meant {' or '.join(names)}"] if names else []
    return "; ".join([*parts, f"`{[*commands, program][0]} --help` shows what there is."])
