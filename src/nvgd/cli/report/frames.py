"""Positions of the particles during a run, for the film in its report."""

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from nvgd._support.archives import read_archive, write_archive
from nvgd._support.errors import InputError
from nvgd._support.processes import is_first_process
from nvgd.cli.report.film import pack_film
from nvgd.flow.stage import StageState
from nvgd.posterior.history_plot import merged_stages
from nvgd.posterior.posterior import Posterior
from nvgd.posterior.selection import important, strongest_pair, without_axes
from nvgd.posterior.summary import scalars
from nvgd.targets.target import Target

KIND = "frames"
# Most frames and particles in the film; more would only enlarge the page.
MAX_FRAMES = 60
MAX_PARTICLES = 300
MAX_SHOWN = 12
# Most scalars to record; the film shows the most important of them.
MAX_RECORDED = 24
SECONDS_BETWEEN_WRITES = 2.0


class Frames:
    """A callback for `sample` that records some scalars of the draws.

    The frames are stored in a file beside the checkpoints, so that the film of an interrupted and
    continued run has all of them.
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
            return  # without these frames, the film is shorter, but the run continues
        self._names = facts["names"]
        steps = arrays["steps"].tolist()
        self._frames = dict(zip(steps, arrays["positions"], strict=True))

    def __call__(self, state: StageState) -> None:
        """Record one state."""
        shown = self._target.present(state.particles[:MAX_PARTICLES])
        derived = self._target.model.deterministics()
        draws = {n: np.asarray(value)[None] for n, value in shown.items() if n not in derived}
        names, values = scalars(draws, self._target.model.labels())
        chosen = _recorded(draws)
        self._names = [names[i] for i in chosen]
        self._frames[int(state.step)] = values[0][:, chosen].astype(np.float32)
        if len(self._frames) > 2 * MAX_FRAMES:
            # Thin out the later frames, which bounds the file; most happens at the start.
            steps = sorted(self._frames)
            kept = steps[:MAX_FRAMES] + steps[MAX_FRAMES::2]
            self._frames = {step: self._frames[step] for step in kept}
        if time.monotonic() - self._written_at > SECONDS_BETWEEN_WRITES:
            self.write()

    def write(self) -> None:
        """Store all frames; if the disk is full, frames are lost, but the run continues."""
        if not is_first_process():
            return
        steps = sorted(self._frames)
        positions = np.stack([self._frames[step] for step in steps])
        arrays = {"steps": np.array(steps), "positions": positions}
        with suppress(OSError):
            write_archive(self._path, KIND, {"names": self._names}, arrays)
        self._written_at = time.monotonic()

    def film(self, posterior: Posterior) -> dict[str, Any]:
        """Frames of the most important scalars, for the report's player, denser at the start.

        Its entry `first` holds the two scalars to show first, which depend most on each other.
        """
        steps = [step for step in sorted(self._frames) if step <= posterior.num_steps]
        places = (len(steps) - 1) * np.linspace(0, 1, 2 * MAX_FRAMES) ** 2
        kept = [steps[int(i)] for i in np.unique(places.round())]
        stages = merged_stages(posterior.stages, posterior.num_steps)
        kinds = [next((s.kind for s in stages if step <= s.end), stages[-1].kind) for step in kept]
        draws = {n: v for n, v in posterior.draws.items() if n not in posterior.deterministics}
        names, values = scalars(draws, posterior.labels)
        values = values.reshape(-1, len(names))
        recorded = np.array([i for i, name in enumerate(names) if name in self._names])
        best = important(values[:, recorded], without_axes(draws)[recorded], MAX_SHOWN)
        known = recorded[best]
        columns = [self._names.index(names[i]) for i in known]
        positions = np.stack([self._frames[step][:, columns] for step in kept])
        captions = kinds if len(stages) > 1 else ()
        film = pack_film(positions, kept, [names[i] for i in known], captions=captions)
        return {**film, "first": strongest_pair(values[:, known])}


def _recorded(draws: Mapping[str, np.ndarray]) -> list[int]:
    """Indices of the scalars to record: parameters without axes, then the first of each array."""
    sizes = [int(np.prod(value.shape[2:])) for value in draws.values()]
    starts = np.cumsum([0, *sizes[:-1]])
    places = [
        (value.ndim > 2, rank, int(start) + rank)
        for value, start, size in zip(draws.values(), starts, sizes, strict=True)
        for rank in range(min(size, MAX_RECORDED))
    ]
    return [place for _, _, place in sorted(places)[:MAX_RECORDED]]
