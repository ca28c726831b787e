"""The user's eyes on a run: metrics and callback."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from nvgd.chunks import CAPACITY
from nvgd.errors import InputError, check_callable
from nvgd.flow import FlowState

Metrics = Mapping[str, Callable[[Float[Array, "n d"]], Any]]


class Watch:
    """The user's metrics and callback, at the start, every so many steps, and at the end."""

    def __init__(
        self,
        metrics: Metrics | None,
        every: int,
        callback: Callable[[FlowState], Any] | None,
    ):
        if metrics is not None and (not isinstance(metrics, Mapping) or "step" in metrics):
            raise InputError(
                "metrics must map names other than 'step', which is taken, to functions of the "
                f"particles, got {metrics!r}."
            )
        for name, metric in (metrics or {}).items():
            check_callable(f"metrics[{name!r}]", metric)
        check_callable("callback", callback, optional=True)
        self.metrics, self.every, self.callback = dict(metrics or {}), every, callback
        self._rows: list[dict[str, float]] = []

    def steps_until_next(self, step: int) -> int:
        """How far a chunk may go before the user wants to look."""
        if not self.metrics and self.callback is None:
            return CAPACITY
        return self.every - step % self.every

    def __call__(self, state: FlowState, *, is_last: bool = False) -> None:
        """Look at the state, if it is time to."""
        step = int(state.step)
        if step % self.every and not is_last:
            return
        if self._rows and self._rows[-1]["step"] == step:
            return
        row: dict[str, float] = {"step": step}
        for name, metric in self.metrics.items():
            try:
                row[name] = float(metric(state.particles))
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"metrics[{name!r}] must map particles to a number: {error}."
                ) from error
        self._rows.append(row)
        if self.callback is not None:
            self.callback(state)

    def forget_after(self, step: int) -> None:
        """Drop what was measured at states that turned out to be faulty."""
        self._rows = [row for row in self._rows if row["step"] <= step]

    def records(self) -> dict[str, np.ndarray]:
        """One array a metric, and `step`."""
        return {name: np.array([row[name] for row in self._rows]) for name in self._rows[0]}

    def restore(self, records: Mapping[str, np.ndarray]) -> None:
        """Go on from what an earlier run of the same settings has measured."""
        columns = {name: values.tolist() for name, values in records.items()}
        self._rows = [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
