"""How long a run is: a number of steps, or until nothing can be told from an exact sample."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import numpy as np

from nvgd.chunks import CAPACITY
from nvgd.corrections import Corrections, length_with_corrections
from nvgd.diagnostics.held_out import held_out_discrepancy
from nvgd.diagnostics.measures import standardise
from nvgd.diagnostics.trend import robust_spread, trend
from nvgd.diagnostics.verdict import MIN_PARTICLES
from nvgd.errors import InputError
from nvgd.flow import ParticleFlow
from nvgd.modes import on_all_data
from nvgd.recipes import Stage, plan
from nvgd.target import Target

if TYPE_CHECKING:
    from nvgd.runs import Run

DEFAULT_MAX_STEPS = 10_000
# Steps between two looks, at least; and looks in a row that must show nothing but noise.
CHECK_EVERY = 25
PATIENCE = 4
# Standard errors above zero up to which a held-out discrepancy is noise. Exact samples reach
# two of them in less than one case of a hundred (docs/diagnostics.md).
NOISE_LEVEL = 2.0
# Standard errors up to which the mean log density counts as at rest.
DRIFT_LEVEL = 3.0
# Of the particles, with a finite log density; fewer tell nothing.
FEWEST_SCORED = 0.9
# A look at minibatched targets is a pass over all data: at most every fourth gradient goes there.
STEPS_PER_PASS = 3

Records = dict[str, np.ndarray]


class Look(NamedTuple):
    """What was found at one step."""

    step: int
    discrepancy: float
    error: float
    drift: float
    """Of the mean log density, in standard errors."""


class AbstractLength(ABC):
    """Decides where a run ends and with which flow it goes on."""

    given: ParticleFlow
    """As the person gave it, whatever the run's length is."""
    end: int
    """The step at which the run ends, as far as is known."""

    @abstractmethod
    def planned(self) -> tuple[Stage, ...]:
        """The stages of the run, as far as is known."""

    def flow(self, step: int) -> ParticleFlow | Corrections:
        """The flow for the step after this one."""
        return next(
            (stage.flow for stage in self.planned() if step < stage.until_step),
            self.planned()[-1].flow,
        )

    def stages(self, num_steps: int) -> tuple[Stage, ...]:
        """The stages of a run that has taken so many steps."""
        begun = [0, *(stage.until_step for stage in self.planned())]
        return tuple(
            Stage(min(stage.until_step, num_steps), stage.flow)
            for stage, first in zip(self.planned(), begun, strict=False)
            if first < num_steps or not first
        )

    def check_particles(self, num_particles: int) -> None:
        """Refuse fewer particles than the decision needs."""
        del num_particles

    def steps_until_next(self, step: int) -> int:
        """How far a chunk may go before a look is due, or another stage begins."""
        ends = [stage.until_step for stage in self.planned() if step < stage.until_step]
        return min([end - step for end in ends], default=CAPACITY)

    def look(self, run: "Run") -> None:
        """Measure the run, if it is time to."""
        del run

    def records(self) -> Records:
        """What the looks have found, for a checkpoint."""
        return {}

    def restore(self, records: Mapping[str, np.ndarray]) -> None:
        """Go on from what an earlier run of the same settings has found."""
        del records

    def num_extra_gradients(self, num_steps: int) -> np.ndarray:
        """Gradients a particle that the looks before and at each step have cost, in all."""
        return np.zeros(num_steps, np.int64)


class FixedLength(AbstractLength):
    """A number of steps."""

    def __init__(self, flow: ParticleFlow, target: Target, num_steps: int):
        self.given, self.end = flow, num_steps
        self._plan = plan(flow, target, num_steps)

    def planned(self):
        """The same from the start."""
        return self._plan


class AutoLength(AbstractLength):
    """Until the held-out Stein discrepancy has been at its noise level for long enough.

    Every so many steps the particles and their scores, from all data, go through
    `held_out_discrepancy`, the same measure for every method. A look is quiet if the discrepancy
    lies within two standard errors of zero, as that of an exact sample does, and the mean log
    density was at rest over the last half of the steps. After four quiet looks in a row, at step s:

    - a flow whose steps do not depend on the run's length ends there;
    - one whose steps fall over their second half, as `NVGD()`'s do, is told that it has 2s steps,
      after which corrections follow if a run with so many steps of the flow has them: it ends as
      a run of that length would have, the first half of whose flow came to rest.

    A run that finds no rest takes `max_steps`, exactly as if they had been asked for.
    """

    def __init__(self, flow: ParticleFlow, target: Target, max_steps: int, num_batches: int):
        self.end = self._max_steps = max_steps
        self.given, self._target = flow, target
        self._longest = self._plan = plan(flow, target, max_steps)
        self._has_finish = not eqx.tree_equal(flow.for_run(1), flow.for_run(2))
        num_flow_steps = self._longest[0].until_step
        self._last_look = num_flow_steps // 2 if self._has_finish else num_flow_steps
        self._every = max(CHECK_EVERY, STEPS_PER_PASS * num_batches)
        self._num_batches = num_batches
        self._rows: list[Look] = []
        self.rest_at: int | None = None

    def planned(self):
        """As for the longest run until the particles rest, then as for the run that it is."""
        return self._plan

    def check_particles(self, num_particles):
        """Too few, and everything is noise."""
        if num_particles < MIN_PARTICLES:
            raise InputError(
                f'num_steps="auto" needs at least {MIN_PARTICLES} particles to tell, got '
                f"{num_particles}: give num_steps."
            )

    def steps_until_next(self, step):
        """Up to the next multiple of the interval, or the next stage."""
        return min(self._every - step % self._every, super().steps_until_next(step))

    def look(self, run):
        """Discrepancy and drift, if it is time for them."""
        step = run.num_steps
        if step % self._every or self.rest_at is not None or step > self._last_look or not step:
            return
        if self._rows and self._rows[-1].step >= step:
            return
        particles = run.whole_state.particles
        log_densities, scores = map(np.asarray, on_all_data(run.target, particles))
        is_scored = np.isfinite(log_densities) & np.all(np.isfinite(scores), axis=-1)
        # A few are on their way back from where the log density is not finite.
        if np.mean(is_scored) < FEWEST_SCORED:
            return
        there, log_densities = np.asarray(particles)[is_scored], log_densities[is_scored]
        found = held_out_discrepancy(standardise(there, scores[is_scored]))
        noise = robust_spread(log_densities) / math.sqrt(len(there))
        drift = trend(run.infos().log_density, noise)
        significance = math.inf if drift is None else drift.significance
        self._rows.append(Look(step, found.value, found.error, significance))
        self._decide()

    def _decide(self) -> None:
        num_quiet = 0
        for step, discrepancy, error, drift in self._rows:
            is_quiet = discrepancy <= NOISE_LEVEL * error and abs(drift) <= DRIFT_LEVEL
            num_quiet = num_quiet + 1 if is_quiet else 0
            if num_quiet == PATIENCE:
                self.rest_at = step
                self._end_after(2 * step if self._has_finish else step)
                return

    def _end_after(self, num_flow_steps: int) -> None:
        """Make it the run that has so many steps of the flow."""
        length = num_flow_steps
        if self.given.corrects(self._target):
            length = length_with_corrections(num_flow_steps)
        self.end = min(length, self._max_steps)
        search = Stage(self.rest_at or 0, self._longest[0].flow)
        rest = plan(self.given, self._target, self.end)
        self._plan = (search, *(stage for stage in rest if stage.until_step > search.until_step))

    def records(self):
        """One array a column."""
        columns = np.array(self._rows, np.float64).reshape(-1, len(Look._fields))
        return {name: columns[:, i] for i, name in enumerate(Look._fields)}

    def restore(self, records):
        """The rows, and what follows from them."""
        columns = np.stack([records[name] for name in Look._fields], axis=1)
        self._rows = [Look(int(step), *rest) for step, *rest in columns.tolist()]
        self._decide()

    def num_extra_gradients(self, num_steps):
        """One pass over all data a look."""
        steps = np.array([row.step for row in self._rows])
        return np.searchsorted(steps, np.arange(1, num_steps + 1), side="right") * self._num_batches
