"""What a run records of its steps."""

from typing import Any

import jax
import numpy as np

from nvgd.flow.stage import StepInfo


class History:
    """The `StepInfo` of every step taken, and the gradients that stages spent when they began."""

    def __init__(self, chunks: list[StepInfo] | None = None, init_gradients: Any = ()):
        self._chunks = chunks or []
        self.init_gradients: dict[int, int] = dict(init_gradients)
        """Gradients evaluated by the `init` of later stages, by the step at which they began."""

    def add(self, chunk: StepInfo) -> None:
        """Add the records of some steps, one entry per step."""
        self._chunks.append(chunk)

    def cut(self, num_steps: int) -> None:
        """Forget the records after the first `num_steps` steps."""
        if self._chunks:
            self._chunks = [self.infos(num_steps)]

    def latest(self) -> dict[str, float]:
        """The last value of each quantity."""
        if not self._chunks:
            return {}
        chunk = self._chunks[-1]
        shown = {"log_density": chunk.log_density, **chunk.diagnostics}
        return {name: float(values[-1]) for name, values in shown.items() if len(values)}

    def infos(self, num_steps: int) -> Any:
        """A `StepInfo` of NumPy arrays, with one entry per step."""
        full = [chunk._replace(diagnostics=self._all_diagnostics(chunk)) for chunk in self._chunks]
        return jax.tree.map(lambda *parts: np.concatenate(parts)[:num_steps], *full)

    def arrays(self, num_steps: int, extra_gradients: np.ndarray) -> dict[str, np.ndarray]:
        """One array per quantity, with one entry per step.

        Arguments:
            extra_gradients: cumulative gradients spent beside the steps.
        """
        if not self._chunks:
            return {}
        infos = self.infos(num_steps)
        num_gradients = np.cumsum(infos.num_gradients, dtype=np.int64) + extra_gradients
        for step, number in self.init_gradients.items():
            num_gradients[step:] += number
        return {
            "log_density": infos.log_density,
            "step_norm": infos.step_norm,
            "num_gradients": num_gradients,
            **infos.diagnostics,
        }

    def _all_diagnostics(self, chunk: StepInfo) -> dict[str, Any]:
        """Diagnostics of all stages; NaN (zero for integers) where this one does not report one."""
        known = {name: values for c in self._chunks for name, values in c.diagnostics.items()}
        return {
            name: chunk.diagnostics.get(name, _nothing(values.dtype, len(chunk.log_density)))
            for name, values in known.items()
        }


def _nothing(dtype: np.dtype, length: int) -> np.ndarray:
    return np.full(length, np.nan if np.issubdtype(dtype, np.floating) else 0, dtype)
