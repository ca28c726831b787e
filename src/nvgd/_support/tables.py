"""Numbers for people: aligned text, Markdown, and mean ± standard deviation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Row = Sequence[str]


def align(rows: Sequence[Row]) -> str:
    """Columns of equal width; the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def markdown(rows: Sequence[Row]) -> str:
    """A Markdown table with the first row as its head."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    rule = "|" + "|".join(" --- " if column == 0 else " ---: " for column in range(len(rows[0])))
    return "\n".join([lines[0], rule + "|", *lines[1:]])


def deviation(runs: ArrayLike) -> Any:
    """Standard deviation over runs, the leading axis; of a single one, none."""
    array = np.asarray(runs, np.float64)
    return array.std(axis=0, ddof=1) if len(array) > 1 else np.zeros(array.shape[1:])


def mean_and_deviation(values: ArrayLike, digits: int) -> str:
    """Mean ± standard deviation over runs; a single run has no spread to show."""
    array = np.asarray(values, np.float64)
    mean = f"{array.mean():.{digits}f}"
    return f"{mean} ± {deviation(array):.{digits}f}" if len(array) > 1 else mean
