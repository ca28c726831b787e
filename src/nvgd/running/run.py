"""A run: chunks of steps, from one stage to the next, until its end or the first failure."""

import contextlib
import functools
import time
from collections.abc import Iterator
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from nvgd._support.interrupts import deferred_interrupts
from nvgd._support.processes import agreed
from nvgd.flow.movers.reborn import onto_nearest
from nvgd.flow.stage import StageRecord, StepInfo
from nvgd.posterior.diagnostics.verdict import OTHER_MODE, UNCORRECTED
from nvgd.running import faults
from nvgd.running.callbacks import Monitor
from nvgd.running.chunks import CAPACITY, Chunk, Steps, advance, passes_draws
from nvgd.running.initialisation import is_faulty
from nvgd.running.plan import AbstractLeg, Active, FlowLeg, leg_at
from nvgd.running.progress import Progress
from nvgd.running.run_state import RunState, first_of, padded
from nvgd.targets.corrected_rows import Subsample
from nvgd.targets.density_checks import leaves_behind
from nvgd.targets.other_modes import other_modes
from nvgd.targets.row_passes import faulty_row
from nvgd.targets.subsamples import MOST_ROWS_AT_ONCE

# Chunk lengths adapt to this duration, the interval of progress updates and of checks for Ctrl-C.
SECONDS_PER_CHUNK = 0.25


class Run(RunState):
    """A run: takes the steps of its stages, one stage after another."""

    def go(self, watch: Monitor, saver: Any, progress: Progress) -> None:
        """Take steps until the end of the run, the first failure, or Ctrl-C.

        Arguments:
            watch: takes metrics and calls back.
            saver: the `Checkpoints` of the run, or None.
            progress: shows the progress of the run.
        """
        self._progress = progress
        try:
            self._go(watch, saver, progress)
        except KeyboardInterrupt:
            if jax.process_count() > 1 or not self.num_steps:
                raise
            self.status = faults.interrupted(self.num_steps, self.length.end)
        is_stopped = faults.can_go_on(self.status)
        # Also at the end of the run: what follows can be interrupted, too.
        if saver is not None and (is_stopped or self.status == "completed"):
            is_written = saver.write(self, watch)
            if is_stopped and is_written:
                self.status += f" {faults.RESUMES}"

    def _go(self, watch: Monitor, saver: Any, progress: Progress) -> None:
        step, length = self.num_steps, 1
        if step:
            # A run that was stopped between a step and its checks makes up for them.
            self._settle(step)
        progress.advance(step, self.length.end, {})
        while step < self.length.end and self.status == "completed":
            is_first = self._leg is None or step >= self._leg.until_step
            kind = leg_at(self.length.legs, step, self.active.kind).kind
            progress.enter_stage(kind)
            with progress.compiling(f"the {kind}") if is_first else contextlib.nullcontext():
                with self._stopped_by_errors():
                    self._enter_leg(step)
                if self.status != "completed":
                    break
                ends = [1 if is_first else length, self.length.end - step, self.capacity]
                ends += [watch.steps_until_next(step), self.length.steps_until_next(step)]
                if saver is not None:
                    ends.append(saver.steps_until_next(step))
                if not passes_draws(self._steps(), self.active.state):
                    ends.append(self.draws.steps_until_next(self.active.stage, self.active.state))
                started = time.perf_counter()
                self._chunk(step, agreed(min(ends)))
                seconds = time.perf_counter() - started
            step = self.num_steps
            if self.status == "completed":
                self._settle(step)
            progress.advance(step, self.length.end, self.history.latest())
            if step < self.length.end and self.status == "completed":
                if watch.is_due(step):
                    watch(self.whole_state())
                if saver is not None and agreed(saver.is_due(step)):
                    saver.write(self, watch)
            if seconds < SECONDS_PER_CHUNK / 2:
                length = min(2 * length, CAPACITY)
            elif seconds > 2 * SECONDS_PER_CHUNK:
                length = max(length // 2, 1)

    def _enter_leg(self, step: int) -> None:
        """Switch to the leg of the next step, if it differs from the current one."""
        leg = leg_at(self.length.legs, step, self.active.kind)
        if leg is self._leg:
            return
        if not leg.begins(self.active):
            subsample = self.active.subsample
            stage = leg.enter(self.target, self.active, subsample, self.key).stage
            self.active, self._leg = self.active._replace(stage=stage), leg
            return
        ended = self.whole_active()
        has_arrived = leg_at(self.length.legs, step - 1, ended.kind).is_approach
        if has_arrived and ended.is_cramped and self.length.extend_approach(step):
            leg, has_arrived = leg_at(self.length.legs, step, ended.kind), False
        # This compiles: nothing has changed yet if it is interrupted.
        with self._reading():
            arrived = leg.approach(self.target, ended, step)
            subsample = leg.look_ahead(self.target, arrived, step)
            misleads = has_arrived and subsample is not None and self._misleads(ended, subsample)
        if misleads:
            self._return_to_flow(step)
            return
        searched, num_searched = self._searched(leg, arrived)
        begun = leg.enter(self.target, searched, subsample, self.key)
        with deferred_interrupts():
            self.ended_stages.append(StageRecord(ended.kind, step))
            self.draws.clear()
            if ended.kind == "flow":
                self.flow_state = ended.state
                self.flow_particles = np.asarray(ended.state.particles)
            number = begun.stage.init_gradients(len(begun.state.particles))
            self.history.init_gradients[step] = number + num_searched
            self.restore_active(begun, begun.state)
            self._leg = leg

    def _searched(self, leg: AbstractLeg, ended: Active) -> tuple[Active, int]:
        """The result of `leg.search`; a log density that raises far away ends the search only."""
        try:
            return leg.search(self.target, ended, self._starts, self.chains(), self.key)
        except faults.CALLBACK_ERRORS as error:
            if not self._is_of_log_density(error):
                raise
            return ended, 0

    def _misleads(self, ended: Active, new: Subsample) -> bool:
        """Whether no subsample can stand for all rows.

        The first ones are drawn where a noisy flow left the particles, perhaps too far apart. Hence
        the one after them decides, and whether they have led the particles away from a mode.
        """
        flowed, particles = jnp.asarray(self.flow_particles), ended.state.particles
        if not new.is_usable or leaves_behind(self.target, flowed, particles):
            return True
        others = other_modes(self.target, self._starts, particles, self.num_steps)
        if others is None:
            return False
        if self.target.num_rows <= MOST_ROWS_AT_ONCE:
            self.flow_particles = others.joined(particles)
            return True
        self.notes.append(
            f"climbs from starting positions {OTHER_MODE}, as high as the one that the "
            f"particles are in: {float(others.shares.sum()):.0%} of them. These particles are of "
            "one mode, because no subsample stands for all rows at both; use all "
            "rows at once if they are affordable"
        )
        return False

    def _return_to_flow(self, step: int) -> None:
        """Go on from the end of the flow, which may not have arrived yet."""
        self.length.return_to_flow(step)
        leg = cast(FlowLeg, self.length.legs[0])
        state = leg.flow.init(self.target, jnp.asarray(self.flow_particles), key=self.key)
        begun = Active("flow", leg.flow, state._replace(step=jnp.asarray(step)))
        with deferred_interrupts():
            self.ended_stages.append(StageRecord(self.active.kind, step))
            self.draws.clear()
            if leg is self.length.legs[-1]:
                self.notes.append(self._without_corrections())
            self.restore_active(begun, begun.state)
            self._leg = leg

    def _without_corrections(self) -> str:
        return (
            f"no subsample of the {self.target.num_rows} rows stands for all of them where the "
            "particles are, perhaps because there are several modes: the particles are those "
            f"of the flow, {UNCORRECTED}; use all rows at once if they are affordable"
        )

    def _settle(self, step: int) -> None:
        """Keep the state if it is a draw, and check for convergence."""
        if self.draws.is_due(self.active.stage, self.active.state):
            self.draws.add(self.whole_state())
        with self._stopped_by_errors():
            self.length.look(step, self.whole_state, self.history, self.chains, self.density_error)

    def _chunk(self, step: int, length: int) -> None:
        """Take up to `length` steps after `step`."""
        shares = None
        if self._batches is not None:
            shares = self._placed_batches(self._batches.take(step, length, self._part))
            # The host reads the next batches while the devices work.
            self._batches.read_ahead(step + length, length, self._part)
        raised = None
        with self.placement.active():
            take = functools.partial(
                advance, self._steps(), self.active.state, self.previous, shares
            )
            try:
                with contextlib.nullcontext() if step else faults.at_the_start():
                    chunk = take(length)
            except faults.CALLBACK_ERRORS as error:
                if not self._is_of_log_density(error):
                    raise
                raised, chunk = error, faults.longest(take, length)
        if chunk is not None:
            with deferred_interrupts():
                self._record(step, chunk)
        # An error after a value that is not finite is a consequence, and has been dealt with.
        if raised is not None and (chunk is None or chunk.healthy):
            self._stop_for(raised)

    def _steps(self) -> Steps:
        stage = self.placement.replicate(self.active.stage)
        return Steps(stage, self._placed_target, self._placed_key, self.thin, self.placement)

    @contextlib.contextmanager
    def _stopped_by_errors(self) -> Iterator[None]:
        """Context manager: an error of the log density stops the run at its last good state."""
        try:
            yield
        except faults.CALLBACK_ERRORS as error:
            if not self._is_of_log_density(error):
                raise
            self._stop_for(error)

    def _is_of_log_density(self, error: Exception) -> bool:
        """Whether the log density raised this error, and there is a state to return."""
        return jax.process_count() == 1 and self.num_steps > 0 and faults.is_from_callback(error)

    def _stop_for(self, error: Exception) -> None:
        self.status = faults.raised(self.num_steps, error)

    def _record(self, step: int, chunk: Chunk) -> None:
        """Move to the end of a chunk that began after `step`."""
        tried = len(chunk.infos.log_density)
        self.active, self.previous = self.active._replace(state=chunk.state), chunk.previous
        taken = tried if chunk.healthy else tried - 1
        if self.thin is not None:
            first, last = step // self.thin, (step + taken) // self.thin
            kept = self.placement.gathered(chunk.kept[: last - first])
            self.kept.extend(np.asarray(particles) for particles in kept)
        for state in chunk.draws:
            self.draws.add(state)
        infos = chunk.infos
        num_rows = self._placed_target.batch_size or self._placed_target.num_rows
        if num_rows:
            rows = np.full(tried, num_rows)
            infos = infos._replace(diagnostics={**infos.diagnostics, "num_rows": rows})
        self.history.add(jax.tree.map(lambda leaf: leaf[:taken], infos))
        if not chunk.healthy:
            self._fail(step + tried, jax.tree.map(lambda leaf: leaf[-1], chunk.infos))
            self.history.cut(self.num_steps)

    def _placed_batches(self, taken: PyTree) -> PyTree:
        full = jax.tree.map(jnp.asarray, padded(taken, self.capacity))
        assert self.target.data is not None  # there are batches of it
        return self.target.data.place(full, self.placement, self.target.batch_size or 0)

    def finished(self) -> Float[Array, "n d"]:
        """The final particles, at which the log density is checked to be finite.

        If the mover rescues particles and at most half of them fail the check, those are moved onto
        their nearest valid neighbours. Otherwise, or if the check still fails, the run goes back
        one step and stops.
        """
        particles = None
        if self.status == "completed":
            with self._stopped_by_errors():
                particles = self._finished()
        return self.whole_state().particles if particles is None else particles

    def _finished(self) -> Float[Array, "n d"] | None:
        """The final particles; None if the run goes back one step."""
        active = self.whole_active()
        particles = active.stage.finish(self.target, active.state)
        # The batch of the last step, because there may be no next one.
        last = max(self.num_steps - 1, 0)
        taken = None if self._batches is None else first_of(self._batches, last)
        target = self.active.target(self.target)
        is_lost = np.asarray(is_faulty(target, particles, taken))
        if self.length.given.mover.rescues and 0 < 2 * is_lost.sum() <= len(is_lost):
            particles = jnp.asarray(onto_nearest(np.asarray(particles), is_lost))
            is_lost = np.asarray(is_faulty(target, particles, taken))
        if is_lost.any():
            self._blame_log_density(self.num_steps, int(is_lost.sum()))
            return None
        return particles

    def _fail(self, step: int, info: StepInfo) -> None:
        """Hand the last good particles to the next stage, or stop if there is none."""
        self._stop(step, info)
        if self.length.end_flow(self.num_steps):
            what = self.status.partition("; the particles")[0]
            self.notes.append(f"the flow {what}; the corrections began at step {self.num_steps}")
            self.status = "completed"

    def _stop(self, step: int, info: StepInfo) -> None:
        if info.num_faulty_scores:
            # The previous step moved the particles there; this one evaluated their scores.
            self._blame_log_density(step - 1, int(info.num_faulty_scores))
            return
        num_faulty = int(info.num_faulty_moves)
        self.status = faults.moved_nowhere(step, num_faulty, self._num_particles)

    def _blame_log_density(self, step: int, faulty: int) -> None:
        self.active = self.active._replace(state=self.previous)
        if self.thin is not None:
            del self.kept[self.num_steps // self.thin :]
        self.status = faults.not_finite(step, faulty, self._num_particles, self.num_steps)
        if faulty < self._num_particles:
            return
        row = faulty_row(self.target, jnp.asarray(self.whole_previous().particles[0]))
        if row is not None:
            self.status = faults.faulty_row(step, row, self.num_steps)
