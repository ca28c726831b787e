"""Summary statistics of a posterior, with standard errors of the means."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from nvgd._support.errors import InputError
from nvgd._support.tables import align
from nvgd.targets.positions import element_name

# Largest degrees of freedom of the regression on scores, as a share of the particles.
FREEDOM_SHARE = 0.25


@dataclasses.dataclass(frozen=True, repr=False)
class Summary:
    """Summary statistics, one row per scalar.

    `print(summary)` shows a table; `summary["mean"]` is a column as a dictionary from row names to
    values.

    Attributes:
        names: names of the rows, such as `weights[2]`.
        columns: mean, sd, mc_error (standard error of the mean) and the quantiles.
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
    scores: Float[np.ndarray, "n d"] | None,
    num_kept: int,
    quantiles: Sequence[float],
    is_chains: bool = False,
) -> Summary:
    """Summarise every scalar in `draws`; without scores the standard errors are NaN."""
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
    errors = np.full(len(names), np.nan)
    if is_chains:
        # Chains are independent of each other; further draws are one chain of independent ones.
        means = by_chain.mean(axis=1) if len(by_chain) > 1 else by_chain[0]
        errors = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    elif scores is not None and np.all(np.isfinite(scores)):
        errors = errors_of_means(values, np.asarray(scores, np.float64), num_kept)
    columns = {"mean": values.mean(axis=0), "sd": values.std(axis=0), "mc_error": errors}
    found = np.quantile(values, levels, axis=0)
    columns |= {f"{100 * level:g}%": row for level, row in zip(levels, found, strict=True)}
    return Summary(tuple(names), columns)


def scalars(draws: Mapping[str, Any]) -> tuple[list[str], Float[np.ndarray, "n k c"]]:
    """Names and values of all scalars in draws (chain, draw, …): values (chain, draw, scalar)."""
    names, columns = [], []
    for name, value in draws.items():
        array = np.asarray(value, np.float64)
        for index in np.ndindex(array.shape[2:]):
            names.append(element_name(name, index))
            columns.append(array[(slice(None), slice(None), *index)])
    return names, np.stack(columns, axis=2)


def errors_of_means(
    values: Float[np.ndarray, "n k"], scores: Float[np.ndarray, "n d"], num_kept: int = 1
) -> Float[np.ndarray, " k"]:
    """Standard error of each column's mean, for particles that are not independent draws.

    Interacting particles may be spread more evenly than independent draws, or be shifted or
    contracted as a whole, so sd/√n can be too large or too small. But E_p[∇log p] = 0, however a
    sample of p was made. So regress the values on the scores, g = a + b·s + r. The part of the
    error that is visible in the scores is b·s̄; only the remainder r is treated as independent:

        error² = (b·s̄)² + var(r)/n

    For independent draws its expectation is var(g)/n. In d > n/4 dimensions the regression is
    shrunk to n/4 degrees of freedom, and the error tends to sd/√n.

    Arguments:
        values: g, one column per scalar.
        scores: s.
        num_kept: number of states of a thinned run, concatenated in `values`. The remainder is
            correlated in time, so its variance is then estimated from means of batches of states.
    """
    n, dim = scores.shape
    mean_scores = scores.mean(axis=0)
    centred = scores - mean_scores
    scale = centred.std(axis=0)
    scale[scale == 0] = 1.0
    left, singular, right = np.linalg.svd(centred / scale, full_matrices=False)
    squares = singular**2
    shrinkage = _shrinkage(squares, max(FREEDOM_SHARE * n, 1.0)) if dim > FREEDOM_SHARE * n else 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        is_there = squares > 1e-10 * squares.max(initial=0)
        kept = np.where(is_there, squares / (squares + shrinkage), 0)
        inverse = np.where(kept > 0, kept / singular, 0.0)
    deviations = values - values.mean(axis=0)
    projected = left.T @ deviations
    seen = (mean_scores / scale) @ right.T @ (inverse[:, None] * projected)
    rest = deviations - left @ (kept[:, None] * projected)
    freedom = max(n - 1 - kept.sum(), 1.0)
    return np.sqrt(seen**2 + _variance_of_mean(rest, num_kept) * (n - 1) / freedom)


def _shrinkage(squares: np.ndarray, freedom: float) -> float:
    """λ with Σ σ²/(σ² + λ) = freedom, by bisection on its logarithm."""
    low, high = -40.0, float(np.log(squares.sum() / freedom + 1e-300)) + 1.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        if np.sum(squares / (squares + np.exp(middle))) > freedom:
            low = middle
        else:
            high = middle
    return float(np.exp(high))


def _variance_of_mean(rest: Float[np.ndarray, "n k"], num_kept: int) -> Float[np.ndarray, " k"]:
    if num_kept == 1:
        return rest.var(axis=0, ddof=1) / len(rest)
    states = rest.reshape(num_kept, -1, rest.shape[1]).mean(axis=1)
    num_batches = max(int(np.sqrt(num_kept)), 2)
    batches = np.array([batch.mean(axis=0) for batch in np.array_split(states, num_batches)])
    return batches.var(axis=0, ddof=1) / num_batches
