"""A sentence on the rows that a run in minibatches used, and those that its diagnosis reads."""

from collections.abc import Mapping

import numpy as np

from nvgd.targets.target import Target

# Steps at the end of the flow over which its share of noise is averaged.
LAST_STEPS = 50


def data_used(
    target: Target | None,
    history: Mapping[str, np.ndarray],
    num_particles: int,
    *,
    has_chains: bool,
) -> tuple[str, ...]:
    """Which estimate of the log density the particles or chains used; nothing without minibatches.

    Arguments:
        has_chains: whether corrections ran.
    """
    if target is None or not target.is_noisy or not history:
        return ()
    return (f"{_noise(history)}{_estimate(target, history, num_particles, has_chains)}",)


def _noise(history: Mapping[str, np.ndarray]) -> str:
    shares = np.asarray(history.get("share_noise", ()), np.float64)
    shares = shares[np.isfinite(shares)]
    if not len(shares):
        return ""
    mean = float(shares[-LAST_STEPS:].mean())
    return f"At the end of the flow, {mean:.0%} of the velocities was noise of the batches. "


def _estimate(
    target: Target, history: Mapping[str, np.ndarray], num_particles: int, has_chains: bool
) -> str:
    number = f"{target.num_rows:,}"
    if not has_chains:
        return (
            f"The particles used batches of {target.batch_size} rows. Scores for this diagnosis "
            f"are those of all {number} rows at {num_particles} particles: one pass over the data, "
            "which is not repeated."
        )
    used = int(history["num_rows"][-1])
    rows = (
        f"{used:,} of {number} rows, which stand for all" if used < target.num_rows else "all rows"
    )
    return f"The chains used {rows}. This diagnosis reads no rows."
