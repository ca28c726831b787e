"""Checks of the chains of the corrections: have they mixed, and is there anything to mix over?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nvgd.posterior.chains import Chains
from nvgd.posterior.diagnostics.checks import Check
from nvgd.posterior.diagnostics.cut_off import cut_off_tail
from nvgd.posterior.diagnostics.mixing import LARGEST_BULK, LARGEST_TAIL, Mixing, measure_mixing
from nvgd.posterior.summary import scalars
from nvgd.targets.models import Labels

# Names of the checks that the verdict looks for.
MIXING, TAILS, OUTSIDE, CUT_OFF, RISE, DENSITY = (
    "R-hat of the chains",
    "R-hat of the tails",
    "chains that stay outside",
    "density at the end of a tail",
    "rise of the log density",
    "error of the log density",
)
# Largest error of the log density that the chains use, in nats: it bounds the shift of a mean, in
# standard deviations.
LARGEST_DENSITY_ERROR = 0.2
# Most columns whose R-hat is computed; of more, as many are evenly selected.
MAX_COLUMNS = 2000
# The log density rises without end if its median rises by this much per dimension from the first
# third of the draws to the last, part of it at the end, and its highest 2 % by part of it.
LARGEST_RISE = 1.0
HIGHEST = 0.98
LEAST_AT_END, LEAST_OF_HIGHEST = 0.15, 0.25


def chain_checks(
    chains: Chains,
    draws: Mapping[str, Any],
    names: Sequence[str],
    labels: Labels | None = None,
    density_error: float = 0.0,
) -> dict[str, Check]:
    """R-hat in unconstrained and constrained space, and signs of an improper target.

    Arguments:
        chains: positions in unconstrained space.
        draws: draws (chain, draw, …) in constrained space.
        names: names of the coordinates.
        labels: of the draws' axes.
        density_error: error of the log density that the chains used, in nats.
    """
    shown_names, shown = scalars(draws, labels)
    columns = np.concatenate(
        [shown, chains.positions, chains.log_densities[:, :, None]], axis=2, dtype=np.float64
    )
    column_names = [*shown_names, *(f"{name} (unconstrained)" for name in names), "the log density"]
    # Values that depend on no random number, such as deterministic sites, have nothing to mix.
    chosen = np.flatnonzero(np.isfinite(columns).all(axis=(0, 1)) & (np.ptp(columns, (0, 1)) > 0))
    chosen = chosen[:: -(-len(chosen) // MAX_COLUMNS)]
    found = measure_mixing(columns[:, :, chosen])
    checks = {
        **_mixing(found, [column_names[i] for i in chosen]),
        **_cut_off(chains, names),
        **_rise(chains),
    }
    if density_error:
        is_alarm = not density_error < LARGEST_DENSITY_ERROR
        expected = f"below {LARGEST_DENSITY_ERROR} nats"
        checks[DENSITY] = Check(density_error, None, expected, is_alarm)
    return checks


def _mixing(found: Mixing, labels: Sequence[str]) -> dict[str, Check]:
    worst = int(np.argmax(found.bulk))
    bulk = float(found.bulk[worst])
    tails = np.maximum(found.lower_tail, found.upper_tail)
    farthest = int(np.argmax(tails))
    side = "low" if found.lower_tail[farthest] >= found.upper_tail[farthest] else "high"
    tail, outside = float(tails[farthest]), int(np.argmax(found.num_outside))
    number = float(found.num_outside[outside])
    return {
        MIXING: Check(bulk, None, f"below {LARGEST_BULK}", bulk >= LARGEST_BULK, labels[worst]),
        TAILS: Check(
            tail,
            None,
            f"below {LARGEST_TAIL}",
            tail >= LARGEST_TAIL,
            f"{side} values of {labels[farthest]}",
        ),
        OUTSIDE: Check(number, None, "0", number > 0, labels[outside] if number else ""),
    }


def _cut_off(chains: Chains, names: Sequence[str]) -> dict[str, Check]:
    found = cut_off_tail(chains)
    if found is None:
        return {}
    where = f"{'low' if found.is_low else 'high'} values of {names[found.coordinate]}"
    value, error = found.density, found.error
    return {CUT_OFF: Check(value, error, "0", found.is_alarm, where, value / error)}


def _rise(chains: Chains) -> dict[str, Check]:
    """Rise of the log density, from the first third of the draws to the last.

    Chains on a density that is not bounded climb without end. On a bounded one the median may rise,
    too: while chains approach it, but that slows down; and if chains move to a narrow mode, but
    then the highest values stay, since other chains are there already.
    """
    third = chains.positions.shape[1] // 3
    if not third:
        return {}
    logs = chains.log_densities
    parts = [part / chains.positions.shape[2] for part in np.split(logs, (third, -third), axis=1)]
    first, middle, last = (float(np.median(part)) for part in parts)
    rise, before = last - first, np.quantile(parts[0], HIGHEST)
    rise_of_highest = float(np.quantile(parts[2], HIGHEST) - before)
    is_steady = last - middle >= LEAST_AT_END * rise
    is_alarm = rise >= LARGEST_RISE and rise_of_highest >= LEAST_OF_HIGHEST * LARGEST_RISE
    expected = f"below {LARGEST_RISE} per dimension"
    return {RISE: Check(rise, None, expected, is_alarm and is_steady)}
