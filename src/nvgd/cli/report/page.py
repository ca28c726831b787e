"""The report of a run: one HTML page with all results."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from nvgd._support.files import write_atomically
from nvgd.posterior.diagnostics.verdict import Diagnosis
from nvgd.posterior.posterior import Posterior
from nvgd.posterior.summary import Summary

# Largest width, in CSS pixels, at which the narrow figures are shown.
NARROW = 640
MAX_ROWS = 200
FIGURES = {
    "marginals": "Marginals: histogram, mean and central 90 %",
    "pairs": "Pairs",
    "history": "History of the run",
}
COLOURS = {"converged": "good", "not yet": "wait"}


def write_report(
    path: Path,
    posterior: Posterior,
    summary: Summary,
    diagnosis: Diagnosis,
    settings: Mapping[str, Any],
    animation: Mapping[str, Any],
) -> None:
    """Write the page: verdict, summary, figures, animation, diagnostics, settings.

    Images, style and script are embedded, so that the page works offline and can be sent as one
    file.
    """
    name = Path(str(settings.get("model", "posterior"))).name
    title = f"{name} by {posterior.method}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{len(posterior.particles)} particles, {posterior.num_steps} steps, '
        f"{escape(posterior.status)}.</p>",
        _verdict(diagnosis),
        "<h2>Summary</h2>",
        _summary(summary),
    ]
    for kind in ("marginals", "pairs"):
        parts += [f"<h2>{FIGURES[kind]}</h2>", _figure(posterior, kind)]
    parts += ["<h2>Particles during the run</h2>", _player(animation)]
    parts += [f"<h2>{FIGURES['history']}</h2>", _figure(posterior, "history")]
    parts += ["<h2>Diagnostics</h2>", _checks(diagnosis)]
    parts += ["<h2>Settings</h2>", _settings(settings)]
    page = _PAGE.format(
        title=escape(title),
        style=_resource("page.css"),
        body="\n".join(parts),
        script=_resource("player.js"),
    )
    write_atomically(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))


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


def _resource(name: str) -> str:
    return files("nvgd.cli.report").joinpath(name).read_text(encoding="utf-8")


def _verdict(diagnosis: Diagnosis) -> str:
    lines = [f"<strong>{escape(diagnosis.verdict)}</strong>"]
    lines += [f"<p>{escape(text)}</p>" for text in (diagnosis.reason, diagnosis.advice)]
    lines += [f'<p class="soft">{escape(text)}</p>' for text in diagnosis.cautions]
    colour = COLOURS.get(diagnosis.verdict, "bad")
    return f'<div class="verdict {colour}" id="verdict">{"".join(lines)}</div>'


def _table(rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """An HTML table; the first row is the header, and cells that say "alarm" are highlighted."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    lines = [f"<tr>{head}</tr>"]
    for row in rows[1:]:
        cells = (
            f"<td{' class=alarm' if cell == 'alarm' else ''}>{escape(cell)}</td>" for cell in row
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="scroll"><table class="{kind}">{"".join(lines)}</table></div>'


def _summary(summary: Summary) -> str:
    rows = summary.rows()
    left_out = len(rows) - 1 - MAX_ROWS
    note = f'<p class="soft">{left_out} more rows are in summary.txt.</p>' if left_out > 0 else ""
    return _table(rows[: MAX_ROWS + 1]) + note


def _checks(diagnosis: Diagnosis) -> str:
    if not diagnosis.checks:
        return '<p class="soft">Nothing could be measured.</p>'
    return _table([("measure", "value", "expected", ""), *diagnosis.rows()], "words")


def _settings(settings: Mapping[str, Any]) -> str:
    rows = [(name.replace("_", " "), str(value)) for name, value in settings.items()]
    return _table([("setting", "value"), *rows], "words settings")


def _figure(posterior: Posterior, kind: str) -> str:
    wide, narrow = (_data(posterior.plot(kind, narrow=narrow)) for narrow in (False, True))
    return (
        f'<figure><picture><source media="(max-width: {NARROW}px)" srcset="{narrow}">'
        f'<img id="{kind}" alt="{FIGURES[kind]}" src="{wide}"></picture></figure>'
    )


def _data(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _player(animation: Mapping[str, Any]) -> str:
    # "</" could end the script element; "<\/" is the same string in JSON.
    text = json.dumps(animation, separators=(",", ":")).replace("</", "<\\/")
    return (
        '<canvas id="canvas"></canvas>'
        '<div class="player"><button id="play" type="button">Play</button>'
        '<input id="frame" type="range" min="0" step="1" aria-label="step">'
        '<span id="step"></span></div>'
        f'<script id="animation" type="application/json">{text}</script>'
    )
