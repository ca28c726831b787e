"""The draws that a run keeps of its corrections."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nvgd.flow.stage import AbstractStage
from nvgd.posterior.chains import Chains
from nvgd.running.chunks import CAPACITY

# The fields of a stage's state that belong to a draw.
FIELDS = ("particles", "log_densities", "scores")


class KeptDraws:
    """States of a stage at its `kept_steps`, on the host."""

    def __init__(self):
        self._by_step: dict[int, tuple[np.ndarray, ...]] = {}

    def steps_until_next(self, stage: AbstractStage, state: Any) -> int:
        """Number of steps before the next draw; `CAPACITY` if there is none."""
        steps = stage.kept_steps(*state.particles.shape)
        later = steps[max(-(-(int(state.step) + 1 - steps.start) // steps.step), 0) :]
        return later[0] - int(state.step) if later else CAPACITY

    def is_due(self, stage: AbstractStage, state: Any) -> bool:
        """Whether this state is a draw."""
        return int(state.step) in stage.kept_steps(*state.particles.shape)

    def add(self, state: Any) -> None:
        """Keep a state."""
        self._by_step[int(state.step)] = tuple(np.asarray(getattr(state, x)) for x in FIELDS)

    def chains(self, stage: AbstractStage, state: Any) -> Chains | None:
        """The draws of this stage so far; None if there are none."""
        steps = stage.kept_steps(*state.particles.shape)
        kept = [self._by_step[step] for step in steps if step in self._by_step]
        if not kept:
            return None
        return Chains(*(np.stack(parts, axis=1) for parts in zip(*kept, strict=True)))

    def clear(self) -> None:
        """Forget all draws, when a new stage begins."""
        self._by_step.clear()

    def arrays(self) -> dict[str, np.ndarray]:
        """The contents, for a checkpoint."""
        if not self._by_step:
            return {}
        parts = zip(*self._by_step.values(), strict=True)
        stacked = {name: np.stack(part) for name, part in zip(FIELDS, parts, strict=True)}
        return {"step": np.array(list(self._by_step)), **stacked}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the `arrays` of a checkpoint."""
        rows = zip(*(arrays[name] for name in FIELDS), strict=True) if arrays else ()
        steps = arrays["step"].tolist() if arrays else ()
        self._by_step = dict(zip(steps, rows, strict=True))
