"""The report of a run: one HTML page with all results."""

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nvgd._support.tables import html_table
from nvgd.cli.report.document import PLAYER, embedded_image, embedded_json, resource, write_page
from nvgd.cli.report.film import pack_film
from nvgd.posterior.diagnostics.diagnosis import Diagnosis
from nvgd.posterior.palette import colour_of, tint
from nvgd.posterior.plots import MAX_PAIRS, MAX_POINTS
from nvgd.posterior.posterior import Posterior
from nvgd.posterior.predictive_plot import predict_observed, predictive
from nvgd.posterior.selection import important, strongest_pair, without_axes
from nvgd.posterior.summary import Summary, scalars

# Largest width, in CSS pixels, at which the narrow figures are shown.
NARROW = 640
# A summary with more rows than this is folded up, variable by variable.
MAX_OPEN_ROWS = 20
# Rows per variable; summary.txt has all.
MAX_ROWS = 200
# Most scalars to choose a pair from.
MAX_CHOICES = 60
CHOOSER = (
    '<div class="chooser"><label>across <select class="across"></select></label>'
    '<label>up <select class="up"></select></label></div>'
)
COLOURS = {"converged": "good", "not yet": "wait"}


def write_report(
    path: Path,
    posterior: Posterior,
    summary: Summary,
    diagnosis: Diagnosis,
    settings: Mapping[str, Any],
    film: Mapping[str, Any],
) -> None:
    """Write the page: verdict, summary, figures, film, diagnostics, settings.

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
        _summary(summary, posterior),
        "<h2>Marginals: density, median, central 50 % and 90 %</h2>",
        _figure("marginals", lambda narrow: posterior.plot("marginals", narrow=narrow)),
        *_pairs(posterior),
        *_predictive(posterior),
        "<h2>Particles during the run</h2>",
        _film(film),
        "<h2>History of the run</h2>",
        _figure("history", lambda narrow: posterior.plot("history", narrow=narrow)),
        "<h2>Diagnostics</h2>",
        _checks(diagnosis),
        "<h2>Settings</h2>",
        _settings(settings),
    ]
    colour = colour_of(posterior.method)
    style = resource("page.css") + (
        f":root {{ --point: {colour}; }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ --point: {tint(colour, 0.35)}; }} }}\n"
    )
    script = resource("player.js") + resource("report.js")
    write_page(path, title, "\n".join(parts), style=style, script=script)


def _verdict(diagnosis: Diagnosis) -> str:
    lines = [f"<strong>{escape(diagnosis.verdict)}</strong>"]
    reason = f"{diagnosis.reason[:1].upper()}{diagnosis.reason[1:]}"
    lines += [f"<p>{escape(text)}</p>" for text in (reason, diagnosis.advice)]
    lines += [f'<p class="soft">{escape(text)}</p>' for text in diagnosis.cautions]
    colour = COLOURS.get(diagnosis.verdict, "bad")
    return f'<div class="verdict {colour}" id="verdict">{"".join(lines)}</div>'


def _scrolled(table: str) -> str:
    return f'<div class="scroll">{table}</div>'


def _summary(summary: Summary, posterior: Posterior) -> str:
    """One table, or one per variable, folded up, if there are many rows."""
    head, *rows = summary.rows()
    if len(rows) <= MAX_OPEN_ROWS:
        return _scrolled(html_table([head, *rows]))
    singles, folded, start = [], [], 0
    for name in posterior.ordered_names:
        values = posterior.draws[name]
        size = int(np.prod(values.shape[2:]))
        own = rows[start : start + size]
        start += size
        if values.ndim == 2:
            singles += own
            continue
        kind = ", deterministic" if name in posterior.deterministics else ""
        note = f'<p class="soft">The first {MAX_ROWS}; summary.txt has all.</p>'
        folded.append(
            f"<details><summary>{escape(name)} ({size} rows{kind})</summary>"
            + _scrolled(html_table([head, *own[:MAX_ROWS]]))
            + (note if size > MAX_ROWS else "")
            + "</details>"
        )
    opened = _scrolled(html_table([head, *singles])) if singles else ""
    return opened + "".join(folded)


def _pairs(posterior: Posterior) -> list[str]:
    """Pairs of the most important scalars, and a panel for any other pair."""
    draws = {n: v for n, v in posterior.draws.items() if n not in posterior.deterministics}
    names, values = scalars(draws, posterior.labels)
    if len(names) < 2:
        return []
    figure = _figure("pairs", lambda narrow: posterior.plot("pairs", narrow=narrow))
    if len(names) <= MAX_PAIRS:
        return ["<h2>Pairs</h2>", figure]
    values = values.reshape(-1, len(names))
    chosen = important(values, without_axes(draws), MAX_CHOICES)
    values = values[:: -(-len(values) // MAX_POINTS), chosen]
    still = pack_film(values[None], [0], [names[i] for i in chosen])
    return [
        "<h2>Pairs: hyperparameters, and what depends on them most</h2>",
        figure,
        "<h3>Any two scalars</h3>",
        f'<div id="pair">{CHOOSER}<canvas></canvas></div>',
        embedded_json("draws", {**still, "first": strongest_pair(values)}),
    ]


def _predictive(posterior: Posterior) -> list[str]:
    """The posterior predictive check, if the model has observed data and can predict new data."""
    if posterior.target is None:
        return []
    found = predict_observed(posterior.target, posterior.flat_positions)
    if not found:
        return []
    colour = colour_of(posterior.method)
    return [
        "<h2>Posterior predictive check: predicted and observed data</h2>",
        _figure("predictive", lambda narrow: predictive(found, colour=colour, narrow=narrow)),
    ]


def _film(film: Mapping[str, Any]) -> str:
    return (
        f'<div id="film">{CHOOSER}<canvas></canvas>{PLAYER}<p class="soft note"></p></div>'
        f"{embedded_json('animation', film)}"
    )


def _checks(diagnosis: Diagnosis) -> str:
    if not diagnosis.checks:
        return '<p class="soft">Nothing could be measured.</p>'
    table = html_table([("measure", "value", "expected", ""), *diagnosis.rows()], "words")
    return _scrolled(table)


def _settings(settings: Mapping[str, Any]) -> str:
    """The settings that were given or have a default."""
    rows = [
        (name.replace("_", " "), str(value))
        for name, value in settings.items()
        if value is not None
    ]
    return _scrolled(html_table([("setting", "value"), *rows], "words settings"))


def _figure(kind: str, draw: Callable[[bool], Figure]) -> str:
    wide, narrow = (embedded_image(draw(narrow)) for narrow in (False, True))
    return (
        f'<figure><picture><source media="(max-width: {NARROW}px)" srcset="{narrow}">'
        f'<img id="{kind}" alt="{kind}" src="{wide}"></picture></figure>'
    )
