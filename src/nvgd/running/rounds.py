"""The length of a run with corrections that ends by itself: rounds, until the chains have mixed."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nvgd.flow.particle_flow import ParticleFlow
from nvgd.flow.stage import StageState
from nvgd.posterior.chains import Chains
from nvgd.posterior.diagnostics.chain_checks import LARGEST_DENSITY_ERROR
from nvgd.posterior.diagnostics.mixing import measure_mixing
from nvgd.running.history import History
from nvgd.running.plan import APPROACH, FEWEST_FLOW_STEPS, CorrectionLeg, FlowLeg
from nvgd.running.stopping import AbstractLength
from nvgd.targets.subsamples import MOST_BATCHES
from nvgd.targets.target import Target

# Number of corrections in the first round; every further round is twice as long as the one before,
# and its subsample of the rows may be GROWTH times as large: in the end, all rows.
FIRST_ROUND = 600
GROWTH = 4
# With minibatches, a run returns to its flow this often if no subsample can stand for all rows
# where the flow left the particles; the last time, it stays there.
MOST_RETURNS = 3


class RoundEnd(NamedTuple):
    """What was found at the end of a round."""

    step: int
    excess: float
    """Worst R-hat of all coordinates, where 1 is the largest allowed (`Mixing.excess`)."""
    density_error: float
    """Error of the log density that the round used, in units in which 1 is too large."""

    @property
    def is_good(self) -> bool:
        """Whether the round's chains have mixed, over the right target."""
        return self.excess < 1 and self.density_error < 1


class RoundsLength(AbstractLength):
    """A flow, then rounds of corrections until the chains of a round have mixed.

    The first round takes 600 steps. If R-hat of some coordinate is too large at its end, the round
    counts as warm-up of the next one, which is twice as long. Draws are those of the last round.
    With minibatches, a short round comes first, and the log density of a round is checked against
    all rows, too.

    Arguments:
        max_steps: the run ends here at the latest.
    """

    def __init__(self, flow: ParticleFlow, target: Target, max_steps: int):
        self.given, self._max_steps = flow, max_steps
        self._approach = APPROACH if target.is_noisy else 0
        self._ends: list[RoundEnd] = []
        self._flow_end, self._num_returns = min(FEWEST_FLOW_STEPS, max_steps), 0
        self._plan()

    def _plan(self) -> None:
        """The flow, the rounds so far, and the next one unless the last has mixed."""
        step, length, rounds = self._flow_end, FIRST_ROUND, []
        flow = FlowLeg(self.given, step, step)
        if self._num_returns >= MOST_RETURNS:
            self.legs, self.end = (flow,), step
            return
        if self._approach and step < self._max_steps:
            step = min(step + self._approach, self._max_steps)
            rounds.append(CorrectionLeg(self.given, step, self._most_batches(0)))
        for number in range(len(self._ends) + 1):
            is_over = bool(number) and self._ends[number - 1].is_good
            if is_over or step >= self._max_steps:
                break
            left = self._max_steps - step
            # What would be left for another round joins this one.
            step += left if left < 3 * length else length
            # The error that was measured tells more than the one that is expected.
            num_wrong = sum(end.density_error >= 1 for end in self._ends[:number])
            most = self._most_batches(number)
            rounds.append(CorrectionLeg(self.given, step, most, GROWTH**num_wrong))
            length *= 2
        self.legs, self.end = (flow, *rounds), step

    def _most_batches(self, number: int) -> int:
        """Largest size of a round's subsample, in batches; it grows with returns to the flow."""
        return MOST_BATCHES * GROWTH ** (number + 2 * self._num_returns)

    @property
    def is_converged(self):
        """Whether the chains of the last round have mixed."""
        return self._ends[-1].is_good if self._ends else None

    def look(
        self,
        step: int,
        state: Callable[[], StageState],
        history: History,
        chains: Callable[[], Chains | None],
        density_error: Callable[[], float],
    ) -> None:
        """At the end of a round, measure how well its chains have mixed."""
        del state, history
        if step < self.end or (self._ends and self._ends[-1].step >= step):
            return
        found = chains()
        if found is None:
            return
        columns = np.concatenate([found.positions, found.log_densities[:, :, None]], axis=2)
        excess = float(np.max(measure_mixing(columns).excess))
        self._ends.append(RoundEnd(step, excess, density_error() / LARGEST_DENSITY_ERROR))
        self._plan()

    def end_flow(self, step):
        """End the flow here; the first round is as much longer."""
        self.legs = (FlowLeg(self.given, step, step), *self.legs[1:])
        return len(self.legs) > 1

    def return_to_flow(self, step):
        """Plan a flow of as many further steps as a round has, and then rounds."""
        self._num_returns += 1
        self._flow_end = min(step + FIRST_ROUND, self._max_steps)
        self._plan()

    def records(self):
        """One array per field of `RoundEnd`."""
        columns = np.array(self._ends, np.float64).reshape(-1, len(RoundEnd._fields))
        return {name: columns[:, i] for i, name in enumerate(RoundEnd._fields)}

    def restore(self, records):
        """Restore the rounds and plan again from them."""
        columns = np.stack([records[name] for name in RoundEnd._fields], axis=1)
        self._ends = [RoundEnd(int(step), *rest) for step, *rest in columns.tolist()]
        self._plan()
