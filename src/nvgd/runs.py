"""A run in progress: compiled chunks of steps, what they recorded, and how they ended."""

import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from nvgd.chunks import CAPACITY, advance
from nvgd.data import AbstractBatches, AbstractHostData, steps_at_a_time
from nvgd.flow import FlowInfo, FlowState
from nvgd.initialisation import is_faulty
from nvgd.movers.rebirth import on_neighbours
from nvgd.recipes import first_flow
from nvgd.sharding import Layout
from nvgd.stopping import AbstractLength
from nvgd.target import Target
from nvgd.watching import Watch

if TYPE_CHECKING:
    from nvgd.checkpoints import Checkpoints

# The progress bar moves, and Ctrl-C is answered, about this often.
SECONDS_PER_CHUNK = 0.25


class Run:
    """A run in progress: its state, what has been recorded, and how it ended."""

    def __init__(
        self,
        length: AbstractLength,
        target: Target,
        state: FlowState,
        key: PRNGKeyArray,
        batches: AbstractBatches | None,
        thin: int | None,
        layout: Layout = Layout(),
    ):
        self.length, self.target, self.key = length, target, key
        self.batches, self.thin, self.layout = batches, thin, layout
        self._placed_target, self._placed_key = layout.place_target(target), layout.place(key)
        self.restore_state(state, state)
        self.status = "completed"
        self.kept: list[np.ndarray] = []
        self._infos: list[FlowInfo] = []
        # Batches that the host reads are large: fewer steps' fit a chunk.
        self.capacity = CAPACITY
        self._part = slice(None)
        if batches is not None:
            self.capacity = steps_at_a_time(batches.take(self.num_steps, 1), CAPACITY)
            self._part = layout.batch_part(target.batch_size or 0)

    def go(self, watch: Watch, checkpoints: "Checkpoints | None", progress: bool) -> None:
        """Step until the end or the first fault."""
        from tqdm import tqdm

        step, length = self.num_steps, 1
        # tqdm's None: no bar unless the output is a terminal.
        with tqdm(
            total=self.length.end,
            initial=step,
            desc=type(self.length.flow(step)).__name__,
            unit="step",
            disable=None if progress else True,
            dynamic_ncols=True,
        ) as bar:
            while step < self.length.end and self.status == "completed":
                ends = [length, self.length.end - step, self.capacity]
                ends += [watch.steps_until_next(step), self.length.steps_until_next(step)]
                if checkpoints is not None:
                    ends.append(checkpoints.steps_until_next(step))
                started = time.perf_counter()
                taken = self._chunk(step, self.layout.agreed(min(ends)))
                seconds = time.perf_counter() - started
                step += taken
                bar.update(taken)
                bar.set_postfix(self._latest(), refresh=False)
                if self.status == "completed":
                    self.length.look(self)
                    bar.total = self.length.end
                if step < self.length.end and self.status == "completed":
                    watch(self.whole_state)
                    if checkpoints is not None and self.layout.agreed(checkpoints.is_due(step)):
                        checkpoints.write(self, watch)
                if seconds < SECONDS_PER_CHUNK / 2:
                    length = min(2 * length, CAPACITY)
                elif seconds > 2 * SECONDS_PER_CHUNK:
                    length = max(length // 2, 1)

    def _chunk(self, step: int, length: int) -> int:
        shares = None
        if self.batches is not None:
            shares = self._placed_batches(self.batches.take(step, length, self._part))
            # While the devices work, the host reads what is likely to come next.
            self.batches.read_ahead(step + length, length, self._part)
        try:
            with self.layout.active():
                chunk = advance(
                    self.layout.place(self.length.flow(step)),
                    self._placed_target,
                    self.state,
                    self.previous,
                    shares,
                    self.layout.place(jnp.array(length)),
                    thin=self.thin,
                    key=self._placed_key,
                    layout=self.layout,
                )
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            if jax.process_count() > 1 or not step:
                raise
            self.status = (
                f"stopped between steps {step} and {step + length}: the log density raised an "
                f"error ({_last_line(error)}); the particles of step {step} are returned. Mend it "
                "and run again: with checkpoint= the run goes on where it was saved."
            )
            return 0
        tried = int(chunk.length)
        # Cut on the host: on the device every length would be a program of its own.
        infos = jax.tree.map(lambda leaf: np.asarray(leaf)[:tried], chunk.infos)
        self.state, self.previous = chunk.state, chunk.previous
        taken = tried if chunk.healthy else tried - 1
        if self.thin is not None and chunk.kept is not None:
            first, last = step // self.thin, (step + taken) // self.thin
            self.kept.extend(np.asarray(self.layout.gathered(chunk.kept))[: last - first])
        if not chunk.healthy:
            self._fail(step + tried, jax.tree.map(lambda leaf: leaf[-1], infos))
        self._infos.append(jax.tree.map(lambda leaf: leaf[:taken], infos))
        return taken

    def _placed_batches(self, taken: PyTree) -> PyTree:
        full = jax.tree.map(jnp.asarray, padded(taken, self.capacity))
        if isinstance(self.target.data, AbstractHostData):
            return self.layout.place_batches(full, self.target.batch_size or 0)
        return self.layout.place(full)

    @property
    def num_steps(self) -> int:
        """Steps behind the present state."""
        return int(self.state.step)

    def check_end(self) -> None:
        """See that the log density is finite where the last step ended.

        A few particles that a rescuing mover would have brought back are put on their nearest
        neighbours; otherwise the run falls back by a step.
        """
        # The batch of the last step: there may be no further one.
        last = max(self.num_steps - 1, 0)
        taken = None if self.batches is None else first_of(self.batches, last)
        state = self.whole_state
        is_lost = np.asarray(is_faulty(self.target, state.particles, taken))
        rescues = first_flow(self.length.planned()).mover.rescues
        if rescues and 0 < 2 * is_lost.sum() <= len(is_lost):
            mended = on_neighbours(np.asarray(state.particles), is_lost)
            self.restore_state(state._replace(particles=jnp.asarray(mended)), self.whole_previous)
            is_lost = np.asarray(is_faulty(self.target, self.whole_state.particles, taken))
        if is_lost.any():
            self._blame_log_density(self.num_steps, int(is_lost.sum()))

    def _fail(self, step: int, info: FlowInfo) -> None:
        if info.num_faulty_scores:
            # They were reached by the step before the one that found out.
            self._blame_log_density(step - 1, int(info.num_faulty_scores))
            return
        self.status = (
            f"stopped at step {step}: the move made {int(info.num_faulty_moves)} of "
            f"{len(self.state.particles)} particles non-finite; the particles of step {step - 1} "
            "are returned. Try a smaller step size."
        )

    def _blame_log_density(self, step: int, faulty: int) -> None:
        self.state = self.previous
        if self.thin is not None:
            del self.kept[self.num_steps // self.thin :]
        self.status = (
            f"stopped at step {step}: the log density or its gradient is not finite at {faulty} of "
            f"{len(self.state.particles)} particles; the particles of step {self.num_steps} are "
            "returned. Try a smaller step size, check the log density far from its mode, or write "
            "it in unconstrained coordinates (log of a scale, logit of a probability)."
        )

    def _latest(self) -> dict[str, str]:
        info = self._infos[-1]
        shown = {"log_density": info.log_density, **info.diagnostics}
        return {name: f"{values[-1]:.3g}" for name, values in shown.items() if len(values)}

    def infos(self) -> Any:
        """A `FlowInfo` of NumPy arrays, one entry a step taken."""
        names = dict.fromkeys(name for info in self._infos for name in info.diagnostics)
        full = [
            info._replace(diagnostics=_with_all(info, names, self._infos)) for info in self._infos
        ]
        return jax.tree.map(lambda *parts: np.concatenate(parts)[: self.num_steps], *full)

    def history(self) -> dict[str, np.ndarray]:
        """One array a quantity, one entry a step taken."""
        infos = self.infos()
        extra = len(self.state.particles) * self.length.num_extra_gradients(self.num_steps)
        return {
            "log_density": infos.log_density,
            "step_norm": infos.step_norm,
            "num_gradients": np.cumsum(infos.num_gradients, dtype=np.int64) + extra,
            **infos.diagnostics,
        }

    def restore(
        self, state: FlowState, previous: FlowState, infos: FlowInfo, kept: list[np.ndarray]
    ) -> None:
        """Go on from where an earlier run of the same settings was."""
        self.restore_state(state, previous)
        self._infos, self.kept = [infos], kept

    def restore_state(self, state: FlowState, previous: FlowState) -> None:
        """Put these where the run's arrays live."""
        self.state = self.layout.place_state(state)
        self.previous = self.layout.place_state(previous)

    @property
    def whole_state(self) -> FlowState:
        """The state as every process can read it."""
        return self.layout.gathered(self.state)

    @property
    def whole_previous(self) -> FlowState:
        """The one before."""
        return self.layout.gathered(self.previous)


def _with_all(info: FlowInfo, names: Iterable[str], infos: Sequence[FlowInfo]) -> dict[str, Any]:
    """Diagnostics under all names; what a stage does not measure is none, or not a number."""
    diagnostics: dict[str, Any] = dict(info.diagnostics)
    for name in names:
        if name not in diagnostics:
            known = next(other.diagnostics[name] for other in infos if name in other.diagnostics)
            fill = np.nan if np.issubdtype(known.dtype, np.floating) else 0
            diagnostics[name] = np.full(len(info.log_density), fill, known.dtype)
    return diagnostics


def _last_line(error: Exception) -> str:
    """Of a traceback that came through a compiled program, what was raised."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return (raised or lines or [type(error).__name__])[-1][:200]


def padded(taken: PyTree, capacity: int) -> PyTree:
    """Batches of several steps in one shape for any number of them: one program serves all."""

    def fill(leaf: np.ndarray) -> np.ndarray:
        full = np.zeros((capacity, *leaf.shape[1:]), leaf.dtype)
        full[: len(leaf)] = leaf
        return full

    return jax.tree.map(fill, taken)


def first_of(batches: AbstractBatches, step: int) -> PyTree:
    """What the batch of one step is made from."""
    return jax.tree.map(lambda leaf: leaf[0], batches.take(step, 1))
