"""Summary statistics of a posterior, with standard errors of the means."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from nvgd._support.errors import InputError
from nvgd._support.tables import align
from nvgd.posterior.stein_estimates import stein_moments
from nvgd.targets.positions import element_name

# Most draws times squared dimension in a regression on control variates.
MOST_WORK = 5e8


@dataclasses.dataclass(frozen=True, repr=False)
class Summary:
    """Summary statistics, one row per scalar.

    `print(summary)` shows a table; `summary["mean"]` is a column as a dictionary from row names to
    values.

    Attributes:
        names: names of the rows, such as `weights[2]`.
        columns: mean and sd, with control variates where they reduce the error, mc_error (standard
            error of the mean) and the quantiles.
    """

    names: tuple[str, ...]
    columns: Mapping[str, np.ndarray]

    def __getitem__(self, column: str) -> dict[str, float]:
        if column not in self.columns:
            raise InputError(
                f"a summary has the columns {', '.join(self.columns)}, not {column!r}."
            )
        return dict(zip(self.names, self.columns[column].tolist(), strict=True))

    def rows(self) -> list[tuple[str, ...]]:
        """The rows of the table as text, header first."""
        rows = [("", *self.columns)]
        for i, name in enumerate(self.names):
            cells = (values[i] for values in self.columns.values())
            rows.append((name, *("–" if np.isnan(x) else f"{x:.4g}" for x in cells)))
        return rows

    def __repr__(self) -> str:
        return align(self.rows())


def summarise(
    draws: Mapping[str, Any],
    positions: Float[np.ndarray, "m d"],
    scores: Float[np.ndarray, "m d"] | None,
    quantiles: Sequence[float],
) -> Summary:
    """Summarise every scalar in `draws`.

    Arguments:
        draws: draws (chain, draw, …) in constrained space.
        positions, scores: the same draws in unconstrained space, chain after chain, and their
            scores; without scores, means are plain means and have no error.
    """
    try:
        levels = np.asarray(quantiles, np.float64)
    except (TypeError, ValueError):
        levels = np.full(1, np.nan)
    if levels.ndim != 1 or not np.all((levels >= 0) & (levels <= 1)):
        raise InputError(
            f"quantiles must be numbers between 0 and 1, got {quantiles!r}; a name goes to "
            'summary()["mean"]["name"].'
        )
    names, by_chain = scalars(draws)
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
        columns["mc_error"][is_finite] = found.mean_errors
    found = np.quantile(values, levels, axis=0)
    columns |= {f"{100 * level:g}%": row for level, row in zip(levels, found, strict=True)}
    return Summary(tuple(names), columns)


def independent_groups(num_chains: int, num_draws: int) -> Int[np.ndarray, " m"]:
    """A number for every draw, chain after chain, equal for those that may depend on each other.

    Chains are independent of each other. The draws of a single chain are particles, or further
    draws of many chains, and independent, too.
    """
    if num_chains == 1:
        return np.arange(num_draws)
    return np.repeat(np.arange(num_chains), num_draws)


def _affordable_rows(groups: Int[np.ndarray, " m"], dim: int) -> Int[np.ndarray, " r"]:
    """Rows, evenly selected, on which regressions take seconds at most."""
    most = max(int(MOST_WORK / dim**2), 2 * dim, 1000)
    return np.arange(len(groups))[:: -(-len(groups) // most)]


def scalars(draws: Mapping[str, Any]) -> tuple[list[str], Float[np.ndarray, "n k c"]]:
    """Names and values of all scalars in draws (chain, draw, …): values (chain, draw, scalar)."""
    names, columns = [], []
    for name, value in draws.items():
        array = np.asarray(value, np.float64)
        for index in np.ndindex(array.shape[2:]):
            names.append(element_name(name, index))
            columns.append(array[(slice(None), slice(None), *index)])
    return names, np.stack(columns, axis=2)
