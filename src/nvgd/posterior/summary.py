"""Summary statistics of a posterior, with standard errors of the means."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from nvgd._support.errors import InputError, check_fraction, optional_import
from nvgd._support.tables import align, html_table
from nvgd.posterior.stein_estimates import stein_moments, total_errors
from nvgd.targets.models import Labels
from nvgd.targets.positions import element_name

# Most draws times squared dimension in a regression on control variates.
MOST_WORK = 5e8


# Most rows of a table on a screen.
MAX_ROWS = 40
_REST = "to_text() shows all, summary(var_names=[…]) the chosen ones"


@dataclasses.dataclass(frozen=True, repr=False)
class Summary:
    """Summary statistics, one row per scalar.

    `print(summary)` shows a table, and notebooks show it as such; `summary["mean"]` is a column as
    a dictionary from row names to values; `summary.to_pandas()` is a data frame. A long table shows
    its first rows only: `print(summary.to_text())` shows all of them.

    Attributes:
        names: names of the rows, such as `weights[2]`, or `weights[age]` if the model has labels.
        columns: mean and sd, with control variates where they reduce the error, mc_error (standard
            error of the mean), the quantiles, and the ends of the highest-density interval.
    """

    names: tuple[str, ...]
    columns: Mapping[str, np.ndarray]

    def __getitem__(self, column: str) -> dict[str, float]:
        if column not in self.columns:
            raise InputError(
                f"a summary has the columns {', '.join(self.columns)}, not {column!r}."
            )
        return dict(zip(self.names, self.columns[column].tolist(), strict=True))

    def rows(self, max_rows: int | None = None) -> list[tuple[str, ...]]:
        """The rows of the table as text, header first; the first `max_rows` of them if given."""
        rows = [("", *self.columns)]
        for i, name in enumerate(self.names[:max_rows]):
            cells = (_cell(column, values[i]) for column, values in self.columns.items())
            rows.append((name, *cells))
        return rows

    def to_text(self, max_rows: int | None = None, *, rest: str = _REST) -> str:
        """The table as text: all rows, or the first ones and a note about the others.

        Arguments:
            max_rows: the number of rows to show; all if omitted.
            rest: what to say about the others.
        """
        text = align(self.rows(max_rows))
        left_out = _left_out(len(self.names), max_rows, rest)
        return f"{text}\n{left_out}" if left_out else text

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with all rows."""
        pandas = optional_import("pandas", "data", "to_pandas")
        return pandas.DataFrame(dict(self.columns), index=list(self.names))

    def __repr__(self) -> str:
        return self.to_text(MAX_ROWS)

    def _repr_html_(self) -> str:
        left_out = _left_out(len(self.names), MAX_ROWS, _REST)
        note = f"<p>{escape(left_out)}</p>" if left_out else ""
        return html_table(self.rows(MAX_ROWS)) + note


def _cell(column: str, value: float) -> str:
    if np.isnan(value):
        return "–"
    # An error is itself an estimate: two digits of it mean something.
    return f"{value:.2g}" if column == "mc_error" else f"{value:.4g}"


def _left_out(total: int, max_rows: int | None, rest: str) -> str:
    """A sentence about the rows that a table omits; empty if there are none."""
    if max_rows is None or total <= max_rows:
        return ""
    return f"{total - max_rows} of {total} rows are not shown: {rest}."


def summarise(
    draws: Mapping[str, Any],
    positions: Float[np.ndarray, "m d"],
    scores: Float[np.ndarray, "m d"] | None,
    quantiles: Sequence[float],
    hdi: float | None,
    labels: Labels | None,
    density_error: float = 0.0,
) -> Summary:
    """Summarise every scalar in `draws`.

    Arguments:
        draws: draws (chain, draw, …) in constrained space.
        positions, scores: the same draws in unconstrained space, chain after chain, and their
            scores; without scores, means are plain means and have no error.
        quantiles: levels of the quantiles, between 0 and 1.
        hdi: probability of the highest-density interval; none if omitted.
        labels: of the draws' axes, for the names of the rows.
        density_error: error of the log density that the draws represent, in nats.
    """
    if hdi is not None:
        check_fraction("hdi", hdi)
    try:
        levels = np.asarray(quantiles, np.float64)
    except (TypeError, ValueError):
        levels = np.full(1, np.nan)
    if levels.ndim != 1 or not np.all((levels >= 0) & (levels <= 1)):
        raise InputError(
            f"quantiles must be numbers between 0 and 1, got {quantiles!r}; a name goes to "
            'summary()["mean"]["name"].'
        )
    names, by_chain = scalars(draws, labels)
    values = by_chain.reshape(-1, len(names))
    columns = {
        "mean": values.mean(axis=0),
        "sd": values.std(axis=0),
        "mc_error": np.full(len(names), np.nan),
    }
    is_finite = np.isfinite(values).all(axis=0)
    if scores is not None and is_finite.any():
        groups = independent_groups(*by_chain.shape[:2])
        rows = _affordable_rows(groups, positions.shape[1])
        found = stein_moments(
            values[np.ix_(rows, is_finite)], positions[rows], scores[rows], groups[rows]
        )
        columns["mean"][is_finite], columns["sd"][is_finite] = found.means, found.sds
        columns["mc_error"][is_finite] = total_errors(
            found.mean_errors, found.means, found.sds, density_error, scores.dtype
        )
    found = np.quantile(values, levels, axis=0)
    columns |= {f"{100 * level:g}%": row for level, row in zip(levels, found, strict=True)}
    if hdi is not None:
        ends = zip(("low", "high"), highest_density_interval(values, hdi), strict=True)
        columns |= {f"hdi{100 * hdi:g}%_{end}": column for end, column in ends}
    return Summary(tuple(names), columns)


def independent_groups(num_chains: int, num_draws: int) -> Int[np.ndarray, " m"]:
    """A group number per draw, chain after chain; draws of one group may be correlated.

    Chains are independent of each other. The draws of a single chain are particles, or further
    draws of many chains, and independent, too.
    """
    if num_chains == 1:
        return np.arange(num_draws)
    return np.repeat(np.arange(num_chains), num_draws)


def _affordable_rows(groups: Int[np.ndarray, " m"], dim: int) -> Int[np.ndarray, " r"]:
    """Evenly spaced rows, few enough that a regression takes seconds at most."""
    most = max(int(MOST_WORK / dim**2), 2 * dim, 1000)
    return np.arange(len(groups))[:: -(-len(groups) // most)]


def highest_density_interval(
    values: Float[np.ndarray, "m c"], probability: float
) -> tuple[Float[np.ndarray, " c"], Float[np.ndarray, " c"]]:
    """Ends of the narrowest interval that holds this share of the draws, in every column."""
    ordered = np.sort(values, axis=0)
    held = max(int(np.ceil(probability * len(ordered))), 1)
    widths = ordered[held - 1 :] - ordered[: len(ordered) - held + 1]
    # A column with a value that is not a number has no narrowest interval.
    start = np.argmin(np.where(np.isnan(widths), np.inf, widths), axis=0)
    columns = np.arange(values.shape[1])
    return ordered[start, columns], ordered[start + held - 1, columns]


def scalars(
    draws: Mapping[str, Any], labels: Labels | None = None
) -> tuple[list[str], Float[np.ndarray, "n k c"]]:
    """Names and values of all scalars in draws (chain, draw, …): values (chain, draw, scalar)."""
    arrays = [np.asarray(value, np.float64) for value in draws.values()]
    columns = [array.reshape(*array.shape[:2], -1) for array in arrays]
    return scalar_names(draws, labels), np.concatenate(columns, axis=2)


def scalar_names(draws: Mapping[str, Any], labels: Labels | None = None) -> list[str]:
    """Names of all scalars in draws (chain, draw, …).

    Arguments:
        labels: of the draws' axes: an element is called `a[north]` where its axis has labels, and
            `a[0]` elsewhere.
    """
    names = []
    for name, value in draws.items():
        axes = _axis_labels(name, np.shape(value)[2:], labels)
        names += [element_name(name, index) for index in itertools.product(*axes)]
    return names


def _axis_labels(name: str, shape: tuple[int, ...], labels: Labels | None) -> list[Sequence[Any]]:
    """The labels along every axis of an output; numbers where the model has none."""
    numbers: list[Sequence[Any]] = [range(length) for length in shape]
    axes = () if labels is None else labels.dims.get(name, ())
    if labels is None or len(axes) != len(shape):
        return numbers
    known = [labels.coords.get(axis, ()) for axis in axes]
    # Labels that do not fit are left to ArviZ, which names what is wrong with them.
    return [
        own if len(own) == len(axis) else axis for own, axis in zip(known, numbers, strict=True)
    ]
