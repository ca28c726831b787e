"""The length of a run: a fixed number of steps, or automatic stopping."""

import math
from abc import ABC
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from nvgd._support.errors import InputError
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.flow.stage import StageState
from nvgd.posterior.chains import Chains
from nvgd.posterior.diagnostics.held_out import held_out_discrepancy
from nvgd.posterior.diagnostics.measures import standardise
from nvgd.posterior.diagnostics.trend import quartile_scale, trend
from nvgd.posterior.diagnostics.verdict import MIN_PARTICLES
from nvgd.running.chunks import CAPACITY
from nvgd.running.history import History
from nvgd.running.plan import FlowLeg, Plan, leg_at, plan
from nvgd.targets.target import Target

# Fewest steps between two checks, and number of consecutive quiet checks required to stop.
CHECK_EVERY = 25
PATIENCE = 4
# A held-out discrepancy up to this many standard errors counts as noise. Exact samples reach two
# standard errors in less than one case in a hundred (docs/results/diagnostics.md).
NOISE_LEVEL = 2.0
# A drift of the mean log density up to this many standard errors counts as noise.
DRIFT_LEVEL = 3.0
# A check needs a finite log density and score at this share of the particles.
FEWEST_SCORED = 0.9
# With minibatches, a check is a pass over all data: at most one gradient in four goes to checks.
STEPS_PER_PASS = 3

Records = dict[str, np.ndarray]


class ConvergenceCheck(NamedTuple):
    """The result of one convergence check."""

    step: int
    discrepancy: float
    """The held-out Stein discrepancy."""
    error: float
    """Its standard error."""
    drift: float
    """Drift of the mean log density, in standard errors."""


class AbstractLength(ABC):
    """Decides where a run ends and which stages it has."""

    given: ParticleFlow
    """The flow as the user gave it, before it is adapted to the run's length."""
    end: int
    """The step at which the run ends, as currently planned."""
    legs: Plan
    """The legs of the run, as currently planned."""
    identity: Mapping[str, int] = MappingProxyType({})
    """Settings without which a run cannot be resumed, for a checkpoint."""

    def check(self, num_particles: int) -> None:
        """Refuse a run with too few particles to decide when to stop."""
        del num_particles

    def steps_until_next(self, step: int) -> int:
        """Number of steps before the next check or the next leg."""
        until_step = leg_at(self.legs, step).until_step
        return until_step - step if step < until_step else CAPACITY

    def look(
        self,
        step: int,
        state: Callable[[], StageState],
        history: History,
        chains: Callable[[], Chains | None],
        density_error: Callable[[], float],
    ) -> None:
        """Check for convergence, if a check is due.

        Arguments:
            step: number of steps taken.
            state: gathers the current state.
            history: records of all steps.
            chains: the draws of the active stage so far.
            density_error: measures the error of the log density that the stage uses.
        """
        del step, state, history, chains, density_error

    def end_flow(self, step: int) -> bool:
        """End the flow at this step, if another stage follows it; whether one does."""
        rest = tuple(leg for leg in self.legs if leg.kind != "flow")
        if rest:
            self.legs = (FlowLeg(self.given, step, step), *rest)
        return bool(rest)

    def extend_approach(self, step: int) -> bool:
        """Plan another approach after this step, if there is time for it; whether there is."""
        del step
        return False

    def return_to_flow(self, step: int) -> None:
        """Plan the rest of the run, after this step, from a flow; here, there is nothing else."""
        del step
        self.legs = (FlowLeg(self.given, self.end, self.end),)

    @property
    def is_converged(self) -> bool | None:
        """Whether the run came to rest; None if that was not checked."""
        return None

    def records(self) -> Records:
        """The results of the checks so far, for a checkpoint."""
        return {}

    def restore(self, records: Mapping[str, np.ndarray]) -> None:
        """Restore the `records` of a checkpoint."""
        del records

    def num_extra_gradients(self, num_steps: int) -> np.ndarray:
        """Cumulative gradients per particle spent on convergence checks, one entry per step."""
        return np.zeros(num_steps, np.int64)


class FixedLength(AbstractLength):
    """A fixed number of steps."""

    def __init__(self, flow: ParticleFlow, target: Target, num_steps: int):
        self.given, self.end = flow, num_steps
        self.legs = plan(flow, target, num_steps)


class QuietLength(AbstractLength):
    """Stop when the held-out Stein discrepancy has stayed at its noise level for several checks.

    For flows without corrections. At regular intervals, a check evaluates `held_out_discrepancy`,
    the same measure for every method, from the particles and their scores of all data. A check is
    quiet if the discrepancy is at most two standard errors above zero, as that of an exact sample
    is, and the mean log density showed no drift over the last half of the steps. After four quiet
    checks in a row, at step s:

    - a flow whose step sizes do not depend on the run's length ends;
    - a flow whose step sizes decay over the second half, as those of `NVGD()` do, continues to 2s
      steps.

    A run without four quiet checks in a row takes `max_steps` steps, as if `num_steps=max_steps`.
    """

    def __init__(self, flow: ParticleFlow, target: Target, max_steps: int):
        if not target.can_use_all_data:
            raise InputError(
                'num_steps="auto" needs passes over all data, which an iterator or generator does '
                "not allow: give num_steps, or a BatchStream of a list or data loader."
            )
        self.end = self._max_steps = max_steps
        # The steps before the first check depend on it.
        self.identity = {"max_steps": max_steps}
        self.given, self._target = flow, target
        self.legs = plan(flow, target, max_steps)
        self._has_finish = flow.depends_on_length
        num_flow_steps = self.legs[0].until_step
        self._last_look = num_flow_steps // 2 if self._has_finish else num_flow_steps
        batch_size = target.batch_size
        self._num_batches = 1 if batch_size is None else -(-target.num_rows // batch_size)
        self._every = max(CHECK_EVERY, STEPS_PER_PASS * self._num_batches)
        self._rows: list[ConvergenceCheck] = []
        self.rest_at: int | None = None

    def check(self, num_particles):
        """Refuse too few particles, with which the discrepancy is only noise."""
        if num_particles < MIN_PARTICLES:
            raise InputError(
                f'num_steps="auto" needs at least {MIN_PARTICLES} particles to tell, got '
                f"{num_particles}: give num_steps."
            )

    def steps_until_next(self, step):
        """Steps until the next multiple of the interval, or until the next leg."""
        return min(self._every - step % self._every, super().steps_until_next(step))

    def look(self, step, state, history, chains, density_error):
        """Measure discrepancy and drift, if a check is due, and decide whether to stop."""
        del chains, density_error
        if step % self._every or self.rest_at is not None or step > self._last_look or not step:
            return
        if self._rows and self._rows[-1].step >= step:
            return
        self._measure(step, state().particles, history.infos(step).log_density)
        self._decide()

    def _measure(self, step: int, particles: Float[Array, "n d"], history: np.ndarray) -> None:
        found = self._target.on_all_data(particles)
        is_scored = np.asarray(found.is_finite)
        # Movers that rescue particles allow a few at which the log density is not finite.
        if np.mean(is_scored) < FEWEST_SCORED:
            return
        there, scores = np.asarray(particles)[is_scored], np.asarray(found.scores)[is_scored]
        measured = held_out_discrepancy(standardise(there, scores))
        log_densities = np.asarray(found.log_densities)[is_scored]
        noise = quartile_scale(log_densities) / math.sqrt(len(there))
        drift = trend(history, noise)
        significance = math.inf if drift is None else drift.significance
        self._rows.append(ConvergenceCheck(step, measured.value, measured.error, significance))

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
        """Plan the rest as in a run whose flow takes `num_flow_steps`."""
        self.end = min(num_flow_steps, self._max_steps)
        rest_at = self.rest_at or 0
        search = FlowLeg(self.given, rest_at, self.legs[0].until_step)
        rest = plan(self.given, self._target, self.end)
        self.legs = (search, *(leg for leg in rest if leg.until_step > rest_at))

    @property
    def is_converged(self):
        """Whether four checks in a row were quiet."""
        return self.rest_at is not None

    def records(self):
        """One array per field of `ConvergenceCheck`."""
        columns = np.array(self._rows, np.float64).reshape(-1, len(ConvergenceCheck._fields))
        return {name: columns[:, i] for i, name in enumerate(ConvergenceCheck._fields)}

    def restore(self, records):
        """Restore the checks and decide again from them."""
        columns = np.stack([records[name] for name in ConvergenceCheck._fields], axis=1)
        self._rows = [ConvergenceCheck(int(step), *rest) for step, *rest in columns.tolist()]
        self._decide()

    def num_extra_gradients(self, num_steps):
        """One pass over all data per check."""
        steps = np.array([row.step for row in self._rows])
        return np.searchsorted(steps, np.arange(1, num_steps + 1), side="right") * self._num_batches
