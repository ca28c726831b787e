"""Where the particles were during a run, for the film in its report."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from nvgd.archives import read_archive, write_archive
from nvgd.errors import InputError
from nvgd.flow import FlowState
from nvgd.processes import is_first_process
from nvgd.summaries import scalars
from nvgd.target import Target

KIND = "frames"
# What a film shows, at most: more would make the page heavy and no clearer.
MAX_FRAMES = 60
MAX_PARTICLES = 300
SECONDS_BETWEEN_WRITES = 2.0


class Frames:
    """The first two scalars of the draws at some steps; a callback for `sample`.

    Kept in a file beside the checkpoints, so that the film of an interrupted run is whole.
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
            return  # a film is not worth refusing a run for
        self._names = facts["names"]
        steps = arrays["steps"].tolist()
        self._frames = dict(zip(steps, arrays["positions"], strict=True))

    def __call__(self, state: FlowState) -> None:
        """Keep this state's particles."""
        names, values = scalars(self._target.present(state.particles[:MAX_PARTICLES]))
        self._names = names[:2]
        self._frames[int(state.step)] = values[:, :2]
        if time.monotonic() - self._written_at > SECONDS_BETWEEN_WRITES:
            self.write()

    def write(self) -> None:
        """Store all frames."""
        if not is_first_process():
            return
        steps = sorted(self._frames)
        positions = np.stack([self._frames[step] for step in steps])
        arrays = {"steps": np.array(steps), "positions": positions}
        write_archive(self._path, KIND, {"names": self._names}, arrays)
        self._written_at = time.monotonic()

    def film(self, num_steps: int) -> dict[str, Any]:
        """Evenly chosen frames up to a step, as plain numbers of four digits."""
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
