"""Self-contained HTML pages: style, scripts, data and images are embedded."""

import base64
import io
import json
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from nvgd._support.files import write_atomically

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
<script>
{script}</script>
</body>
</html>
"""


def write_page(path: Path, title: str, body: str, *, style: str, script: str) -> None:
    """Write a page that works offline and can be sent as one file.

    Arguments:
        title: as plain text.
        body: HTML.
        style, script: contents of its style sheet and of its script.
    """
    page = _PAGE.format(title=escape(title), style=style, body=body, script=script)
    write_atomically(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))


def resource(name: str) -> str:
    """A style sheet or script of this folder."""
    return files("nvgd.cli.report").joinpath(name).read_text(encoding="utf-8")


def embedded_json(identifier: str, data: Any) -> str:
    """A script element with JSON data, which the page's script finds by identifier."""
    # "</" could end the script element; "<\\/" is the same string in JSON.
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    return f'<script id="{identifier}" type="application/json">{text}</script>'


def embedded_image(figure: Figure, *, dpi: int = 110) -> str:
    """A data URI of the figure, with a transparent background."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, transparent=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


PLAYER = (
    '<div class="player"><button class="play" type="button">Play</button>'
    '<input class="frame" type="range" min="0" step="1" aria-label="step">'
    '<output class="step"></output></div>'
)
