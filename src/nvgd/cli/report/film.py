"""Films of particles, packed for the player in a page."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from nvgd.posterior.plots import is_wide

# Codes of positions run from 0 to LARGEST along an axis; OUTSIDE marks a particle beyond it.
LARGEST = 65534
OUTSIDE = 65535
# How far the axis may reach beyond the second half of the film, in units of its range.
REACH = 0.6


def pack_film(
    positions: Float[np.ndarray, "f n c"],
    steps: Sequence[int],
    names: Sequence[str],
    *,
    captions: Sequence[str] = (),
    limits: Sequence[tuple[float, float]] | None = None,
) -> dict[str, Any]:
    """A film for JSON: 16 bits per particle, scalar and frame, between the limits of its axes.

    Arguments:
        positions: every frame's particles, one column per scalar.
        steps: step of every frame.
        names: names of the scalars.
        captions: text beside the step of every frame, such as its stage.
        limits: ends of every axis; if omitted, they fit the second half of the film, and as much
            of the start as lies nearby; positive scalars that span orders of magnitude get
            logarithmic axes.
    """
    columns = np.moveaxis(np.asarray(positions, np.float64), 2, 0)
    late = columns[:, len(steps) // 2 :]
    is_log = [limits is None and is_wide(column.ravel()) for column in late]
    with np.errstate(invalid="ignore", divide="ignore"):
        shown = [np.log10(c) if log else c for c, log in zip(columns, is_log, strict=True)]
    ends = limits or [_limits(column, len(steps) // 2) for column in shown]
    codes = np.stack([_codes(c, *end) for c, end in zip(shown, ends, strict=True)], axis=2)
    return {
        "names": list(names),
        "steps": [int(step) for step in steps],
        "captions": list(captions),
        "limits": [[float(f"{end:.6g}") for end in pair] for pair in ends],
        "log": is_log,
        "shape": list(codes.shape),
        "codes": base64.b64encode(codes.astype("<u2").tobytes()).decode(),
    }


def _codes(column: Float[np.ndarray, "f n"], low: float, high: float) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        places = np.round((column - low) / (high - low) * LARGEST)
        is_inside = (places >= 0) & (places <= LARGEST)
    return np.where(is_inside, places, OUTSIDE)


def _limits(column: Float[np.ndarray, "f n"], middle: int) -> tuple[float, float]:
    """Limits that hold the central 99 % of the second half, and nearby parts of the start."""
    late, whole = (part[np.isfinite(part)] for part in (column[middle:], column))
    if not len(late):
        return 0.0, 1.0
    low, high = np.quantile(late, (0.005, 0.995))
    first, last = np.quantile(whole, (0.01, 0.99))
    reach = REACH * (high - low)
    low, high = min(low, max(first, low - reach)), max(high, min(last, high + reach))
    margin = 0.06 * (high - low) or 1.0
    return float(low - margin), float(high + margin)
