"""Metrics and callbacks, evaluated during a run."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from nvgd._support.errors import InputError, check_callable
from nvgd.flow.stage import StageState
from nvgd.running.chunks import CAPACITY

Metrics = Mapping[str, Callable[[Float[Array, "n d"]], Any]]


class Monitor:
    """Evaluates metrics and calls `callback` at the start, at regular intervals and at the end.

    Arguments:
        metrics: functions of the particles, by name.
        every: steps between two evaluations.
        callback: called with the state at the same steps.
    """

    def __init__(
        self,
        metrics: Metrics | None,
        every: int,
        callback: Callable[[StageState], Any] | None,
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
        self._is_called_back = True

    def steps_until_next(self, step: int) -> int:
        """Number of steps before the next evaluation is due."""
        if not self.metrics and self.callback is None:
            return CAPACITY
        return self.every - step % self.every

    def is_due(self, step: int) -> bool:
        """Whether an evaluation is due at this step."""
        is_wanted = bool(self.metrics) or self.callback is not None
        return is_wanted and step % self.every == 0 and not self.has_seen(step)

    def __call__(self, state: StageState) -> None:
        """Evaluate the metrics at this state, and call `callback`."""
        if self.has_seen(int(state.step)):
            self._rows.pop()
        self._rows.append({"step": int(state.step), **self._measured(state.particles)})
        if self.callback is not None:
            self._is_called_back = False
            self.callback(state)
            self._is_called_back = True

    def has_seen(self, step: int) -> bool:
        """Whether the last evaluation was at this step."""
        return bool(self._rows) and self._rows[-1]["step"] == step

    def _measured(self, particles: Float[Array, "n d"]) -> dict[str, float]:
        row = {}
        for name, metric in self.metrics.items():
            try:
                row[name] = float(metric(particles))
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"metrics[{name!r}] must map particles to a number: {error}."
                ) from error
        return row

    def forget_after(self, step: int) -> None:
        """Drop the metrics of later steps, whose states turned out to be invalid."""
        self._rows = [row for row in self._rows if row["step"] <= step]

    def records(self, *, finished: bool = False) -> dict[str, np.ndarray]:
        """One array per metric, and the array `step`.

        Arguments:
            finished: without the last evaluation if its callback was interrupted. A run that
                resumes from there makes it again.
        """
        rows = self._rows[:-1] if finished and not self._is_called_back else self._rows
        names = rows[0] if rows else ()
        return {name: np.array([row[name] for row in rows]) for name in names}

    def restore(self, records: Mapping[str, np.ndarray]) -> None:
        """Restore the `records` of a checkpoint."""
        columns = {name: values.tolist() for name, values in records.items()}
        self._rows = [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
