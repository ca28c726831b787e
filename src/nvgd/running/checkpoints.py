"""Checkpoints on disk, from which an interrupted run resumes with the same result.

A checkpoint is an archive (`nvgd._support.archives`) named after its step. It holds the active
stage, its current and previous state, and the records so far. The settings, the starting particles
and their log densities identify the run. The last two checkpoints are kept, in case the latest is
damaged.
"""

import contextlib
import hashlib
import itertools
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from nvgd._support.archives import (
    Arrays,
    arrays_to_tree,
    read_archive,
    tree_to_arrays,
    write_archive,
)
from nvgd._support.errors import CheckpointWarning, InputError, check_count
from nvgd._support.files import check_output
from nvgd._support.processes import is_first_process, locked_together
from nvgd.exact.hierarchy_frame import HierarchyFrame
from nvgd.exact.modes import Modes
from nvgd.flow.stage import StageRecord, StepInfo
from nvgd.running.callbacks import Monitor
from nvgd.running.chunks import CAPACITY
from nvgd.running.history import History
from nvgd.running.plan import Active
from nvgd.running.run import Run
from nvgd.running.run_state import first_of
from nvgd.targets.corrected_rows import Subsample
from nvgd.targets.evaluation import evaluate

KIND = "checkpoint"
PATTERN = "checkpoint-*.npz"
NUM_KEPT = 2

# Relative tolerances: above the rounding differences between machines, below the differences
# between starts or targets.
TOLERANCES = {"start/particles": 1e-3, "start/log_densities": 3e-5}


class Checkpoints:
    """The checkpoints of one run, in their own directory.

    Arguments:
        directory: created if necessary.
        every: interval between checkpoints, in steps or as a time.
    """

    def __init__(self, directory: Path, every: int | timedelta):
        if isinstance(every, timedelta):
            if every <= timedelta():
                raise InputError(f"checkpoint_every must be a positive duration, got {every}.")
        else:
            check_count("checkpoint_every", every)
        check_output(directory, "checkpoint")
        self.directory, self.every = directory, every
        self._has_one = False
        self._last_time = time.monotonic()
        self._identity: dict[str, Any] = {}
        self._start: Arrays = {}

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Create the directory, and keep other runs out of it."""
        return locked_together(self.directory, "checkpoint")

    def steps_until_next(self, step: int) -> int:
        """Number of steps before a checkpoint is due, if the interval is given in steps."""
        return CAPACITY if isinstance(self.every, timedelta) else self.every - step % self.every

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is due; always after the first chunk of steps."""
        if not self._has_one:
            return True
        if isinstance(self.every, timedelta):
            return time.monotonic() - self._last_time >= self.every.total_seconds()
        return step % self.every == 0

    def write(self, run: Run, watch: Monitor) -> bool:
        """Write a checkpoint of the run, and delete old ones; whether that succeeded."""
        infos = run.history.infos(run.num_steps)._asdict()
        diagnostics = infos.pop("diagnostics")
        arrays = {
            **self._start,
            **tree_to_arrays(run.active.stage, "stage"),
            **tree_to_arrays(run.active.modes, "modes"),
            **tree_to_arrays(run.active.hierarchy, "hierarchy"),
            **tree_to_arrays(run.active.subsample, "subsample"),
            **tree_to_arrays(run.whole_state(), "state"),
            **tree_to_arrays(run.whole_previous(), "previous"),
            "init_gradients": np.array(list(run.history.init_gradients.items()), int).reshape(
                -1, 2
            ),
            **{f"info/{name}": values for name, values in infos.items()},
            **{f"diagnostics/{name}": values for name, values in diagnostics.items()},
            **{f"metrics/{name}": values for name, values in watch.records(finished=True).items()},
            **{f"looks/{name}": values for name, values in run.length.records().items()},
        }
        arrays |= {f"draws/{name}": values for name, values in run.draws.arrays().items()}
        if run.flow_particles is not None:
            arrays["flow_particles"] = run.flow_particles
        if run.kept:
            arrays["kept"] = np.stack(run.kept)
        self._last_time, self._has_one = time.monotonic(), True
        if not is_first_process():
            return True
        path = self.directory / f"checkpoint-{run.num_steps:012d}.npz"
        facts = {**self._identity, "stages": run.stages(), "notes": run.notes}
        try:
            write_archive(path, KIND, facts, arrays)
            for old in self._paths()[NUM_KEPT:]:
                old.unlink()
        except OSError as error:
            # A failed checkpoint must not end the run; earlier ones are still there.
            warnings.warn(
                CheckpointWarning(
                    f"no checkpoint could be written to {str(self.directory)!r} at step "
                    f"{run.num_steps}: {error.strerror or error}. The run goes on, and earlier "
                    "checkpoints are as they were: make room, or make the directory writable."
                ),
                stacklevel=4,
            )
            return False
        return True

    def _paths(self) -> list[Path]:
        """Latest first."""
        return sorted(self.directory.glob(PATTERN), reverse=True)

    def resume(self, run: Run, watch: Monitor, settings: dict[str, Any]) -> None:
        """Restore the run from its latest usable checkpoint, if there is one.

        Arguments:
            settings: further settings that identify the run.
        """
        self._identify(run, settings)
        refusals: list[str] = []
        for path in self._paths():
            try:
                self._restore(run, watch, path)
            except InputError as error:
                refusals.append(str(error))
                continue
            if run.num_steps > run.length.end:
                raise InputError(
                    f"num_steps is {run.length.end}, but the run in {str(self.directory)!r} is at "
                    f"step {run.num_steps} already: ask for more, or choose another directory."
                )
            self._has_one = True
            for refusal in refusals:
                message = f"{refusal} Resuming from the earlier checkpoint at step {run.num_steps}."
                warnings.warn(CheckpointWarning(message), stacklevel=4)
            return
        if refusals:
            raise InputError(
                f"{refusals[0]} No other checkpoint can be used: choose another directory, or "
                "empty this one to start anew."
            )

    def _identify(self, run: Run, settings: dict[str, Any]) -> None:
        taken = None if run.batches is None else first_of(run.batches, 0)
        particles = run.whole_state().particles
        batch = run.target.batch(jax.tree.map(jnp.asarray, taken))
        log_densities = evaluate(run.target, particles, batch).log_densities
        self._start = {
            "start/particles": np.asarray(particles),
            "start/log_densities": np.asarray(log_densities),
        }
        # The number of steps is not part of the identity: a resumed run may be longer.
        flow = run.length.given
        self._identity = {
            "flow": eqx.tree_pformat(flow, width=10**6),
            "flow_arrays": _digest(flow),
            "batch_size": run.target.batch_size,
            "num_rows": run.target.num_rows,
            **settings,
        }

    def _restore(self, run: Run, watch: Monitor, path: Path) -> None:
        facts, arrays = read_archive(path, KIND)
        other = sorted(name for name in self._identity if facts.get(name) != self._identity[name])
        for name, values in self._start.items():
            stored = arrays[name]
            if stored.shape != values.shape or not np.allclose(
                stored, values, rtol=TOLERANCES[name], atol=1e-3
            ):
                other.append(name.replace("start/", "starting ").replace("_", " "))
        if other:
            raise InputError(
                f"{str(path)!r} belongs to another run: it differs in {', '.join(other)}."
            )
        stages = [StageRecord(*stage) for stage in facts["stages"]]
        try:
            active, previous = self._restored(run, stages[-1].kind, arrays)
        except InputError as error:
            raise InputError(f"{str(path)!r} belongs to another run: {error}") from error
        infos: Any = {**_part(arrays, "info"), "diagnostics": _part(arrays, "diagnostics")}
        history = History([StepInfo(**infos)], arrays["init_gradients"].tolist())
        run.restore(active, previous, stages[:-1], history, list(arrays.get("kept", ())))
        run.draws.restore(_part(arrays, "draws"))
        run.flow_particles, run.notes = arrays.get("flow_particles"), list(facts["notes"])
        watch.restore(_part(arrays, "metrics"))
        run.length.restore(_part(arrays, "looks"))
        for before, stage in itertools.pairwise(stages):
            if stage.kind == "flow":
                # The run had returned to its flow.
                run.length.return_to_flow(before.until_step)

    def _restored(self, run: Run, kind: str, arrays: Arrays) -> tuple[Active, Any]:
        """The active stage with its state, and the previous state."""
        like, rows = run.active, _part(arrays, "subsample")
        subsample = Subsample.restored(run.target, rows) if rows else None
        known = _part(arrays, "modes").values()
        modes = Modes(*map(jnp.asarray, known)) if known else None
        parts = _part(arrays, "hierarchy").values()
        hierarchy = HierarchyFrame(*map(jnp.asarray, parts)) if parts else None
        if kind != like.kind:
            legs = [leg for leg in run.length.legs if leg.kind == kind]
            if not legs:
                raise InputError(f"it is already in the stage {kind!r}: ask for more steps.")
            # Shapes only: nothing is computed.
            whole = run.whole_active()._replace(modes=modes, hierarchy=hierarchy)
            like = eqx.filter_eval_shape(legs[0].enter, run.target, whole, subsample, run.key)
        stage = arrays_to_tree(like.stage, arrays, "stage")
        states = (arrays_to_tree(like.state, arrays, name) for name in ("state", "previous"))
        state, previous = states
        return Active(kind, stage, state, subsample, modes, hierarchy), previous


def _part(arrays: Arrays, prefix: str) -> Arrays:
    return {
        name.removeprefix(f"{prefix}/"): values
        for name, values in arrays.items()
        if name.startswith(f"{prefix}/")
    }


def _digest(tree: PyTree) -> str:
    digest = hashlib.sha256()
    for values in tree_to_arrays(eqx.filter(tree, eqx.is_array), "array").values():
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
