"""The length of a run with corrections that ends by itself: rounds, until the chains have mixed."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nvgd.exact.corrections import SHARE_ADAPTING
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.flow.stage import StageState
from nvgd.posterior.chains import Chains
from nvgd.posterior.diagnostics.chain_checks import LARGEST_DENSITY_ERROR
from nvgd.posterior.diagnostics.cut_off import cut_off_tail
from nvgd.posterior.diagnostics.mixing import measure_mixing
from nvgd.running.history import History
from nvgd.running.plan import (
    APPROACH,
    FEWEST_FLOW_STEPS,
    FLOW_SHARE,
    CorrectionLeg,
    FlowLeg,
)
from nvgd.running.stopping import AbstractLength
from nvgd.targets.subsamples import MOST_BATCHES
from nvgd.targets.target import Target

# The flow ends here already if the mean log density has come to rest: if from one of its last two
# windows of this length to the other, it has changed by at most this share of the standard
# deviation that the log density of a normal distribution has.
EARLIEST_END = 200
WINDOW = 25
LARGEST_DRIFT = 0.1
# Number of corrections in the first round; after one that has not mixed, a round is twice as long,
# and its subsample of the rows may be GROWTH times as large: in the end, all rows.
FIRST_ROUND = 600
GROWTH = 4
# A run of a fixed number of steps has this many corrections at least.
LEAST_LEFT = 200
# Share of a round that adapts, after one that has mixed.
SHARE_AFTER_MIXING = 0.125
# One more round follows if the worst R-hat is above this share of what the verdict allows.
SHARE_FOR_END = 0.5
# With minibatches, a run returns to its flow this often if no subsample can stand for all rows
# where the flow left the particles; the last time, it stays there.
MOST_RETURNS = 3
# With minibatches, chains may not go far from where their subsample was drawn. As long as particles
# press against that limit, so many short rounds follow each other, each with a new subsample.
MOST_APPROACHES = 12


class RoundEnd(NamedTuple):
    """What was found at the end of a round."""

    step: int
    excess: float
    """Worst R-hat of all coordinates, where 1 is too large (`Mixing.excess`); at least 1 if a tail
    is cut off."""
    density_error: float
    """Error of the log density that the round used, in units in which 1 is too large."""

    @property
    def is_good(self) -> bool:
        """Whether the round's chains have mixed, over the right target."""
        return self.excess < 1 and self.density_error < 1


class RoundsLength(AbstractLength):
    """A flow, then rounds of corrections until the chains of a round have mixed.

    The flow takes 400 steps, or 200 if its mean log density does not change any more by then.
    The first round takes 600 steps. If R-hat of some coordinate is too large at its end, or all
    chains avoid a tail, the round counts as warm-up of the next one, which is twice as long. Chains
    that have mixed, but with an R-hat more than half of the way to its limit, take one more round
    of the same length. Draws are those of the last round.
    With minibatches, short rounds come first, until the particles have arrived, and the log density
    of a round is checked against all rows, too.

    A run of a fixed number of steps has the same rounds, and the round after one that has mixed
    takes all that is left. Unless it comes to rest, the flow takes a fifth of the steps at least,
    and in short runs all but the last 200.

    Arguments:
        max_steps: the run ends here at the latest.
        is_fixed: whether it always ends there.
    """

    def __init__(
        self, flow: ParticleFlow, target: Target, max_steps: int, *, is_fixed: bool = False
    ):
        self.given, self._max_steps, self._is_fixed = flow, max_steps, is_fixed
        self._num_approaches = int(target.is_noisy)
        self._ends: list[RoundEnd] = []
        self._num_returns = 0
        self._flow_end = FEWEST_FLOW_STEPS
        if is_fixed:
            most = min(FEWEST_FLOW_STEPS, max_steps - LEAST_LEFT)
            self._flow_end = max(most, round(FLOW_SHARE * max_steps))
        self._can_end_early = not target.is_noisy and max_steps > EARLIEST_END
        self._largest_drift = LARGEST_DRIFT * math.sqrt(target.dim / 2)
        self._plan()

    def _plan(self) -> None:
        """The flow, the rounds so far, and the next one unless the last has mixed."""
        step, length, rounds = self._flow_end, FIRST_ROUND, []
        flow = FlowLeg(self.given, step, step)
        if self._num_returns >= MOST_RETURNS:
            self.legs, self.end = (flow,), step
            return
        for _ in range(self._num_approaches if step < self._max_steps else 0):
            step = min(step + APPROACH, self._max_steps)
            most = self._most_batches(0)
            rounds.append(CorrectionLeg(self.given, step, most, is_approach=True))
        for number in range(len(self._ends) + 1):
            before = self._ends[:number]
            is_over = self._is_over(before) and not self._is_fixed
            if is_over or step >= self._max_steps:
                break
            left, confirms = self._max_steps - step, bool(before) and before[-1].is_good
            if before and not confirms:
                length *= 2
            # The error that was measured tells more than the one that is expected.
            num_wrong = sum(end.density_error >= 1 for end in before)
            if number < len(self._ends):
                step = self._ends[number].step
            elif left < length * self._fewest_left(confirms):
                step = self._max_steps
            else:
                step += length
            rounds.append(
                CorrectionLeg(
                    self.given,
                    step,
                    self._most_batches(number),
                    GROWTH**num_wrong,
                    adapting=SHARE_AFTER_MIXING if confirms else SHARE_ADAPTING,
                )
            )
        self.legs, self.end = (flow, *rounds), self._max_steps if self._is_fixed else step

    def _fewest_left(self, confirms: bool) -> float:
        """Steps that another round needs, in lengths of this one; else they join this one."""
        if confirms:
            return math.inf if self._is_fixed else 1.0
        return 2.0 if self._is_fixed else 3.0

    @staticmethod
    def _is_over(ends: list[RoundEnd]) -> bool:
        """Whether no round follows: the last has mixed well, or two have mixed."""
        if not ends or not ends[-1].is_good:
            return False
        return ends[-1].excess < SHARE_FOR_END or (len(ends) > 1 and ends[-2].is_good)

    def _most_batches(self, number: int) -> int:
        """Largest size of a round's subsample, in batches; it grows with returns to the flow."""
        return MOST_BATCHES * GROWTH ** (number + 2 * self._num_returns)

    @property
    def is_converged(self):
        """Whether the chains of the last round have mixed; None if the length is fixed."""
        return self._ends[-1].is_good if self._ends and not self._is_fixed else None

    def steps_until_next(self, step):
        """Number of steps before the flow may end, or before the next leg."""
        number = super().steps_until_next(step)
        is_before = self._can_end_early and step < EARLIEST_END
        return min(number, EARLIEST_END - step) if is_before else number

    def look(
        self,
        step: int,
        state: Callable[[], StageState],
        history: History,
        chains: Callable[[], Chains | None],
        density_error: Callable[[], float],
    ) -> None:
        """End the flow if it has come to rest; at the end of a round, measure the mixing."""
        del state
        if step == EARLIEST_END and self._can_end_early and self._is_at_rest(history, step):
            self._flow_end = step
            self._plan()
        is_last = self._is_fixed and step >= self._max_steps
        if step < self.legs[-1].until_step or is_last or self._has_seen(step):
            return
        found = chains()
        if found is None:
            return
        columns = np.concatenate([found.positions, found.log_densities[:, :, None]], axis=2)
        excess = float(np.max(measure_mixing(columns).excess))
        if excess < 1:
            tail = cut_off_tail(found.thinned())
            excess = 1.0 if tail is not None and tail.is_alarm else excess
        self._ends.append(RoundEnd(step, excess, density_error() / LARGEST_DENSITY_ERROR))
        self._plan()

    def _has_seen(self, step: int) -> bool:
        return bool(self._ends) and self._ends[-1].step >= step

    def _is_at_rest(self, history: History, step: int) -> bool:
        recent = history.infos(step).log_density[-2 * WINDOW :].reshape(2, WINDOW).mean(axis=1)
        return bool(abs(recent[1] - recent[0]) <= self._largest_drift)

    def end_flow(self, step):
        """End the flow here; the first round is as much longer."""
        self.legs = (FlowLeg(self.given, step, step), *self.legs[1:])
        return len(self.legs) > 1

    def extend_approach(self, step):
        """Plan one more short round, unless there were many, or little is left of the run."""
        if (
            self._num_approaches == MOST_APPROACHES
            or step + APPROACH + FIRST_ROUND > self._max_steps
        ):
            return False
        self._num_approaches += 1
        self._plan()
        return True

    def return_to_flow(self, step):
        """Plan a flow of as many further steps as a round has, and then rounds."""
        self._num_returns, self._num_approaches = self._num_returns + 1, 1
        self._flow_end = min(step + FIRST_ROUND, self._max_steps)
        self._plan()

    def records(self):
        """One array per field of `RoundEnd`, the end of the flow, and the number of approaches."""
        columns = np.array(self._ends, np.float64).reshape(-1, len(RoundEnd._fields))
        ends = {name: columns[:, i] for i, name in enumerate(RoundEnd._fields)}
        flow_end, number = np.array(self._flow_end), np.array(self._num_approaches)
        return {**ends, "flow_end": flow_end, "num_approaches": number}

    def restore(self, records):
        """Restore the rounds and plan again from them; a shorter run may have had none."""
        if not records:
            return
        columns = np.stack([records[name] for name in RoundEnd._fields], axis=1)
        self._ends = [RoundEnd(int(step), *rest) for step, *rest in columns.tolist()]
        self._flow_end = int(records["flow_end"])
        self._num_approaches = int(records["num_approaches"])
        self._plan()
