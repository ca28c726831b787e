"""Tables: aligned columns, Markdown, HTML, and mean ± standard deviation."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Row = Sequence[str]


def align(rows: Sequence[Row]) -> str:
    """Format rows as aligned columns; the first is left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def markdown(rows: Sequence[Row]) -> str:
    """Format rows as a Markdown table with the first row as its header.

    The first column and columns of words are left-aligned, the others right-aligned.
    """
    # Otherwise a name such as `<lambda>` would be an element of the page.
    lines = ["| " + " | ".join(cell.replace("<", "&lt;") for cell in row) + " |" for row in rows]
    columns = enumerate(zip(*rows, strict=True))
    rules = [" --- " if not i or _are_words(cells[1:]) else " ---: " for i, cells in columns]
    return "\n".join([lines[0], "|" + "|".join(rules) + "|", *lines[1:]])


def _are_words(cells: Row) -> bool:
    """Whether a column holds words, possibly with gaps."""
    return all(cell[:1].isalpha() for cell in cells if cell)


def html_table(rows: Sequence[Row], kind: str = "") -> str:
    """An HTML table; the first row is its header, and cells that say "alarm" are highlighted.

    Arguments:
        kind: class of the table, for style sheets.
    """
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    lines = []
    for row in rows[1:]:
        cells = (
            f"<td{' class=alarm' if cell == 'alarm' else ''}>{escape(cell)}</td>" for cell in row
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def deviation(runs: ArrayLike) -> Any:
    """Standard deviation over runs, the leading axis; zero for a single run."""
    array = np.asarray(runs, np.float64)
    return array.std(axis=0, ddof=1) if len(array) > 1 else np.zeros(array.shape[1:])


def mean_and_deviation(values: ArrayLike, digits: int) -> str:
    """Format mean ± standard deviation over runs; the mean alone for a single run."""
    array = np.asarray(values, np.float64)
    mean = f"{array.mean():.{digits}f}"
    return f"{mean} ± {deviation(array):.{digits}f}" if len(array) > 1 else mean
