"""MkDocs hook: replace `<!-- help: COMMAND -->` by what `nvgd COMMAND --help` prints."""

import os
import re
import subprocess
import sys
from typing import Any

COLUMNS = "100"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the help texts of a page."""
    return re.sub(r"<!-- help: (.*?) -->", _help, markdown)


def _help(match: re.Match[str]) -> str:
    shown = subprocess.run(
        [sys.executable, "-m", "nvgd", *match[1].split(), "--help"],
        env={**os.environ, "COLUMNS": COLUMNS},
        check=True,
        capture_output=True,
        text=True,
    )
    return f"```text\n{shown.stdout.rstrip()}\n```"
