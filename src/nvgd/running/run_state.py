"""What a run in progress holds: the active stage and its state, records, and status."""

import contextlib
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from nvgd._support.devices import Placement
from nvgd.flow.stage import StageRecord
from nvgd.posterior.chains import Chains
from nvgd.running.chunks import CAPACITY
from nvgd.running.history import History
from nvgd.running.kept_draws import KeptDraws
from nvgd.running.plan import AbstractLeg, Active
from nvgd.running.progress import Progress
from nvgd.running.stopping import AbstractLength
from nvgd.targets.data import AbstractBatches, steps_at_a_time
from nvgd.targets.density_checks import density_error
from nvgd.targets.target import Target


class RunState:
    """A run in progress: its stage and state, its records, and its status.

    Arguments:
        length: decides where the run ends and which stages it has.
        target: the density to sample.
        active: the first stage, with its initial state.
        key: random key of the run.
        batches: the batches of the run; None if every step uses all data.
        thin: keep the particles of every `thin`-th step; None keeps none.
        placement: placement of the arrays on devices.
    """

    def __init__(
        self,
        length: AbstractLength,
        target: Target,
        active: Active,
        key: PRNGKeyArray,
        batches: AbstractBatches | None,
        thin: int | None,
        placement: Placement = Placement(),
    ):
        self.length, self.target, self.key = length, target, key
        self.batches, self.thin, self.placement = batches, thin, placement
        self._placed_key = placement.replicate(key)
        self._leg: AbstractLeg | None = None
        self.restore_active(active, active.state)
        self._starts = np.asarray(placement.gathered(self.active.state.particles))
        self.status = "completed"
        self.kept: list[np.ndarray] = []
        self.history = History()
        self.ended_stages: list[StageRecord] = []
        self.flow_state: Any = None
        """The state at the end of the flow; None before, or if another process took those steps."""
        self.flow_particles: np.ndarray | None = None
        """The particles at the end of the flow; None before."""
        self.draws = KeptDraws()
        self._density_error: tuple[int, float] | None = None
        self._progress = Progress(0, is_shown=False)
        self.notes: list[str] = []
        """Messages about faults from which the run recovered."""
        # Batches read by the host are large, which limits the number of steps per chunk.
        self.capacity = CAPACITY
        self._part = slice(None)
        if batches is not None:
            self.capacity = steps_at_a_time(batches.take(self.num_steps, 1), CAPACITY)
            self._part = placement.batch_part(target.batch_size or 0)

    def _reading(self) -> contextlib.AbstractContextManager[None]:
        """Context manager: show that a pass over all rows is under way, if one is."""
        if not self.target.is_noisy:
            return contextlib.nullcontext()
        return self._progress.working(f"reading all {self.target.num_rows:,} rows")

    @property
    def num_steps(self) -> int:
        """Number of steps taken."""
        return int(self.active.state.step)

    def chains(self) -> Chains | None:
        """The draws of the active stage so far; None if there are none."""
        return self.draws.chains(self.active.stage, self.active.state)

    @property
    def _batches(self) -> AbstractBatches | None:
        """The batches of the active stage."""
        return self.batches if self.active.subsample is None else None

    def density_error(self) -> float:
        """Error of the log density that the active stage uses, in nats; see `density_error`."""
        if self.active.subsample is None:
            return 0.0
        state = self.whole_state()
        if self._density_error is None or self._density_error[0] != self.num_steps:
            with self._reading():
                error = density_error(self.target, state.particles, state.log_densities)
            self._density_error = self.num_steps, error
        return self._density_error[1]

    def steps_between(self, thinned: Chains | None) -> int:
        """Number of steps between two of these draws."""
        steps = self.active.stage.kept_steps(*self.active.state.particles.shape)
        number = 1 if thinned is None else thinned.positions.shape[1]
        return max((steps.stop - steps.start) // number, 1)

    @property
    def _num_particles(self) -> int:
        return len(self.active.state.particles)

    def history_arrays(self) -> dict[str, np.ndarray]:
        """One array per quantity, with one entry per step taken."""
        extra = self._num_particles * self.length.num_extra_gradients(self.num_steps)
        return self.history.arrays(self.num_steps, extra)

    def restore(
        self,
        active: Active,
        previous: Any,
        ended_stages: list[StageRecord],
        history: History,
        kept: list[np.ndarray],
    ) -> None:
        """Restore the run from the content of a checkpoint."""
        self.restore_active(active, previous)
        self.ended_stages, self.history, self.kept = ended_stages, history, kept

    def stages(self) -> tuple[StageRecord, ...]:
        """The stages so far, with the step at which each one ended."""
        return (*self.ended_stages, StageRecord(self.active.kind, self.num_steps))

    def restore_active(self, active: Active, previous: Any) -> None:
        """Make a stage active, and place its state and previous state on the devices."""
        shape = active.state.particles.shape
        state, self.previous = (
            self.placement.split_particles(tree, *shape) for tree in (active.state, previous)
        )
        self.active: Active = active._replace(state=state)
        target = active.target(self.target)
        rows = None if target.data is None or active.subsample else target.data.rows
        self._placed_target = self.placement.split_rows(target, rows)

    def whole_state(self) -> Any:
        """The state, gathered so that every process can read it."""
        return self.placement.gathered(self.active.state)

    def whole_previous(self) -> Any:
        """The previous state, gathered so that every process can read it."""
        return self.placement.gathered(self.previous)

    def whole_active(self) -> Active:
        """The active stage with its state, gathered so that every process can read it."""
        return self.active._replace(state=self.whole_state())


def padded(taken: PyTree, capacity: int) -> PyTree:
    """Pad the batches of several steps to `capacity` steps, so that one program serves all."""

    def fill(leaf: np.ndarray) -> np.ndarray:
        full = np.zeros((capacity, *leaf.shape[1:]), leaf.dtype)
        full[: len(leaf)] = leaf
        return full

    return jax.tree.map(fill, taken)


def first_of(batches: AbstractBatches, step: int) -> PyTree:
    """The entry of one step in `batches`."""
    return jax.tree.map(lambda leaf: leaf[0], batches.take(step, 1))
