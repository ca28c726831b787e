"""What was measured, beside its limits in benchmarks/budgets.toml."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nvgd._support.errors import InputError

Record = Mapping[str, Any]
Budgets = Mapping[str, Mapping[str, float]]

PATH = Path(__file__).parents[1] / "budgets.toml"


class Limited(NamedTuple):
    """A measured value and the largest one that its budget allows."""

    what: str
    value: float
    at_most: float
    unit: str = ""

    @property
    def is_over(self) -> bool:
        """Whether the value is above its limit; NaN is."""
        return not self.value <= self.at_most

    def __str__(self) -> str:
        limit = f"{self.at_most:.3g} {self.unit}".strip()
        return f"{self.what}: {self.value:.3g} {self.unit}".strip() + f", limit {limit}"


def read(path: Path = PATH) -> Budgets:
    """The budgets, by section."""
    try:
        return tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{str(path)!r} must be a TOML file of budgets: {error}.") from error


def limit(budgets: Budgets, section: str, name: str) -> float:
    """One limit."""
    try:
        return float(budgets[section][name])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the budgets need a number {name!r} in [{section}].") from error


def median(times: Sequence[Record], field: str, **wanted: str) -> float | None:
    """The median over the seeds of the records with these fields; None if there are none."""
    values = [
        record[field]
        for record in times
        if field in record and all(record[name] == value for name, value in wanted.items())
    ]
    return float(np.median(values)) if values else None


def ratios(times: Sequence[Record]) -> dict[str, float]:
    """Cold processor seconds of nvgd over those of BlackJAX NUTS, by posterior."""
    found = {}
    for name in dict.fromkeys(record["posterior"] for record in times):
        ours, theirs = (
            median(times, "cpu_seconds", posterior=name, method=method, state="cold")
            for method in ("nvgd", "blackjax_nuts")
        )
        if ours is not None and theirs:
            found[name] = ours / theirs
    return found


def of_times(times: Sequence[Record], budgets: Budgets) -> list[Limited]:
    """Ratios to BlackJAX NUTS, the known shape, and memory."""
    limited, by_posterior = [], ratios(times)
    if by_posterior:
        usual = limit(budgets, "startup", "cold_ratio_to_blackjax")
        number = sum(ratio > usual for ratio in by_posterior.values())
        what = f"posteriors of {len(by_posterior)} with more than {usual:.3g} × BlackJAX NUTS"
        limited.append(Limited(what, number, limit(budgets, "startup", "num_above_ratio")))
        at_most = limit(budgets, "startup", "worst_ratio")
        limited += [
            Limited(f"cold CPU time over BlackJAX NUTS, {name}", ratio, at_most)
            for name, ratio in by_posterior.items()
        ]
    for name in dict.fromkeys(record["posterior"] for record in times):
        # The first call is what follows the import.
        spent = median(
            times, "first_cpu_seconds", posterior=name, method="nvgd", state="known shape"
        )
        if spent is not None:
            at_most = limit(budgets, "startup", "known_shape_cpu_seconds_beyond_import")
            limited.append(Limited(f"known shape beyond import, {name}", spent, at_most, "CPU s"))
        peak = median(times, "peak_gigabytes", posterior=name, method="nvgd", state="cold")
        if peak is not None:
            at_most = limit(budgets, "memory", "cold_gigabytes")
            limited.append(Limited(f"peak memory, {name}", peak, at_most, "GB"))
    return limited


def of_steps(steps: Sequence[Record], budgets: Budgets) -> list[Limited]:
    """Flow steps of the standard normals, and corrections beside a batch of gradients."""
    limited = []
    factor = limit(budgets, "steps", "corrections_gradient_factor")
    over = limit(budgets, "steps", "corrections_ms_over")
    for record in steps:
        target = record["target"]
        if target.startswith("standard_normal_"):
            at_most = limit(budgets, "steps", f"flow_ms_d{record['dim']}_n256")
            limited.append(Limited(f"flow step, {target}", record["flow_cpu_ms"], at_most, "ms"))
        at_most = factor * record["gradient_cpu_ms"] + over
        spent = record["corrections_cpu_ms"]
        limited.append(Limited(f"correction, {target}", spent, at_most, "ms"))
    return limited


def of_programs(programs: Sequence[Record], budgets: Budgets) -> list[Limited]:
    """Compilation of the library's own programs."""
    names = {
        "NVGD()": "own_compilation_cpu_seconds",
        "NVGD.paper()": "paper_compilation_cpu_seconds",
    }
    return [
        Limited(
            f"compilation of {record['flow']}",
            record["first_beyond_second_cpu_seconds"],
            limit(budgets, "startup", names[record["flow"]]),
            "CPU s",
        )
        for record in programs
    ]


def verdict(limited: Sequence[Limited]) -> str:
    """What is over its limit, one line each."""
    over = [f"OVER {measured}" for measured in limited if measured.is_over]
    return "\n".join([*over, f"{len(limited) - len(over)} of {len(limited)} limits are kept."])
