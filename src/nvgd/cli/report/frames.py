"""Positions of the particles during a run, for the animation in its report."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from nvgd._support.archives import read_archive, write_archive
from nvgd._support.errors import InputError
from nvgd._support.processes import is_first_process
from nvgd.flow.stage import StageState
from nvgd.posterior.summary import scalars
from nvgd.targets.target import Target

KIND = "frames"
# Limits of the animation: more would enlarge the page without making it clearer.
MAX_FRAMES = 60
MAX_PARTICLES = 300
SECONDS_BETWEEN_WRITES = 2.0


class Frames:
    """A callback for `sample` that records the first two scalars of the draws.

    The frames are stored in a file beside the checkpoints, so that the animation of an interrupted
    and continued run has all of them.
    """

    def __init__(self, target: Target, path: Path):
        self._target, self._path = target, path
        self._names: list[str] = []
        self._frames: dict[int, np.ndarray] = {}
        self._written_at = time.monotonic()
        if path.exists():
            self._restore()

    def _restore(self) -> None:
        try:
            facts, arrays = read_archive(self._path, KIND)
        except InputError:
            return  # a damaged file costs frames of the animation, not the run
        self._names = facts["names"]
        steps = arrays["steps"].tolist()
        self._frames = dict(zip(steps, arrays["positions"], strict=True))

    def __call__(self, state: StageState) -> None:
        """Record one state."""
        shown = self._target.present(state.particles[:MAX_PARTICLES])
        names, values = scalars({name: value[None] for name, value in shown.items()})
        self._names = names[:2]
        self._frames[int(state.step)] = values[0, :, :2]
        if time.monotonic() - self._written_at > SECONDS_BETWEEN_WRITES:
            self.write()

    def write(self) -> None:
        """Store all frames; a full disk costs frames of the animation, not the run."""
        if not is_first_process():
            return
        steps = sorted(self._frames)
        positions = np.stack([self._frames[step] for step in steps])
        arrays = {"steps": np.array(steps), "positions": positions}
        with suppress(OSError):
            write_archive(self._path, KIND, {"names": self._names}, arrays)
        self._written_at = time.monotonic()

    def animation(self, num_steps: int) -> dict[str, Any]:
        """Evenly spaced frames up to step `num_steps`, for JSON, rounded to four digits."""
        steps = [step for step in sorted(self._frames) if step <= num_steps]
        chosen = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MAX_FRAMES)).round())
        kept = [steps[int(i)] for i in chosen]
        return {
            "names": self._names,
            "steps": kept,
            "positions": [
                [[float(f"{x:.4g}") for x in row] for row in self._frames[step]] for step in kept
            ],
        }
