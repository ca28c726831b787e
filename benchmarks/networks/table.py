"""The page of results, made from the records alone."""

from typing import Any

import numpy as np

from nvgd._support.tables import markdown

METHODS = ("NVGD", "deep ensemble", "SGLD", "SVGD", "MC dropout")
# Published root mean square errors and negative log likelihoods: SVGD (Liu and Wang, 2016), deep
# ensembles (Lakshminarayanan et al., 2017), dropout (Mukhoti et al., 2018).
PUBLISHED = {
    "boston": ((2.957, 2.504), (3.28, 2.41), (2.90, 2.40)),
    "concrete": ((5.324, 3.082), (6.03, 3.06), (4.82, 2.93)),
    "energy": ((1.374, 1.767), (2.09, 1.38), (0.54, 1.21)),
    "kin8nm": ((0.090, -0.984), (0.09, -1.20), (0.08, -1.14)),
    "naval": ((0.004, -4.089), (0.00, -5.63), (0.00, -4.45)),
    "power": ((4.033, 2.815), (4.11, 2.79), (4.01, 2.80)),
    "protein": ((4.606, 2.947), (4.71, 2.83), (4.27, 2.87)),
    "wine": ((0.609, 0.925), (0.64, 0.94), (0.62, 0.93)),
    "yacht": ((0.864, 1.225), (1.58, 1.18), (0.67, 1.25)),
}
INTRODUCTION = """# Networks on UCI regression

One hidden layer of 50 ReLU units (100 for protein), 100 networks, {steps} with batches of an
eighth of the training rows, but 16 to 128 of them. Split k leaves out a tenth of the rows,
chosen by NumPy's `default_rng(k)`; splits 0 to {last_split} at most. *NVGD* is
`nvgd.sample(nvgd.from_network(...))` with its defaults, which has nothing to tune. The rivals have
the same networks, start, batch size and number of gradients (MC dropout: one network, a hundred
times as many steps, 100 masks), and a rate chosen with 20 networks on a tenth of each split's
training rows. ± is the standard error over splits, whose number is in brackets. The published
columns used other splits, other numbers of gradients and 5 to 20 networks.

    python -m benchmarks.networks --data uci_regression.npz --splits {num_splits}{option} \\
        --sets {sets}
"""


def _span(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def page(records: list[dict[str, Any]]) -> str:
    """Markdown of every set's records with the most steps."""
    most: dict[str, int] = {}
    for record in records:
        most[record["set"]] = max(record["num_steps"], most.get(record["set"], 0))
    records = [record for record in records if record["num_steps"] == most[record["set"]]]
    names = [name for name in PUBLISHED if any(record["set"] == name for record in records)]
    methods = [name for name in METHODS if any(record["method"] == name for record in records)]
    last_split = max(record["split"] for record in records)
    parts = [
        INTRODUCTION.format(
            steps=f"{_span(list(most.values()))} steps",
            option="" if len(set(most.values())) > 1 else f" --num-steps {max(most.values())}",
            last_split=last_split,
            num_splits=last_split + 1,
            sets=" ".join(names),
        )
    ]
    for measure, title, column in (
        ("nll", "Negative log likelihood", 1),
        ("rmse", "Root mean square error", 0),
    ):
        lines = [["", *methods, "SVGD, published", "ensemble, published", "dropout, published"]]
        for name in names:
            values = [_values(records, name, method, measure) for method in methods]
            published = [f"{row[column]:.3f}" for row in PUBLISHED[name]]
            cells = [_mean_and_error(each) for each in values]
            lines.append([name, *cells, *published])
        parts.append(f"## {title}\n\n{markdown(lines)}\n")
    lines = [["", *(f"{method}: {what}" for method in methods for what in ("coverage", "seconds"))]]
    for name in names:
        cells = []
        for method in methods:
            coverage, seconds = (
                _values(records, name, method, measure) for measure in ("coverage", "seconds")
            )
            cells.append(f"{np.mean(coverage):.3f}" if coverage else "–")
            cells.append(f"{np.median(seconds):.0f}" if seconds else "–")
        lines.append([name, *cells])
    parts.append(
        "## Coverage of 90 % intervals, and processor seconds per run\n\nSeconds of NVGD include "
        "compilation; those of the rivals leave out the search for their rate, during which their "
        f"program is compiled.\n\n{markdown(lines)}\n"
    )
    return "\n".join(parts)


def _values(records: list[dict[str, Any]], name: str, method: str, measure: str) -> list[float]:
    return [r[measure] for r in records if r["set"] == name and r["method"] == method]


def _mean_and_error(values: list[float]) -> str:
    if not values:
        return "–"
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.3f} ± {error:.3f} ({len(values)})"
