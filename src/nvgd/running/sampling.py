"""`sample`: from a target to its posterior."""

import contextlib
import os
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, UInt32

from nvgd._support.blas_threads import one_blas_thread
from nvgd._support.compilation import make_room, quickly_compiled
from nvgd._support.devices import Devices, Placement, own_devices
from nvgd._support.errors import (
    InputError,
    NotConvergedWarning,
    RunStoppedWarning,
    check_count,
    check_kind,
    check_not_traced,
    check_seed,
)
from nvgd._support.interrupts import heard_interrupts
from nvgd._support.processes import agreed, is_first_process
from nvgd._support.program_cache import keep_compiled_programs
from nvgd.exact.support_points import support_points
from nvgd.flow.methods import NVGD
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.flow.stage import StageState
from nvgd.posterior.chains import Chains
from nvgd.posterior.diagnostics.verdict import INTERRUPTED
from nvgd.posterior.posterior import Posterior
from nvgd.running import faults
from nvgd.running.callbacks import Metrics, Monitor
from nvgd.running.checkpoints import Checkpoints
from nvgd.running.further_draws import further_draws
from nvgd.running.initialisation import check_apart, starting_particles
from nvgd.running.plan import FEWEST_CORRECTIONS, FEWEST_FLOW_STEPS, Active
from nvgd.running.progress import Progress
from nvgd.running.rounds import RoundsLength
from nvgd.running.run import Run
from nvgd.running.run_state import first_of
from nvgd.running.starts import AbstractStart
from nvgd.running.stopping import AbstractLength, FixedLength, QuietLength
from nvgd.targets.coercion import as_target
from nvgd.targets.positions import Position
from nvgd.targets.target import LogDensity, Target

# Number of steps of a run without corrections, and the most that "auto" takes. With minibatches, a
# run passes over all rows this often, within these bounds.
DEFAULT_NUM_STEPS = 1000
DEFAULT_MAX_STEPS = 10_000
NUM_PASSES = 40


class FinalState(NamedTuple):
    """The particles that a run hands over, where they are not those of its last state."""

    particles: Float[Array, "n d"]
    step: Int[Array, ""]


def sample(
    target: Target | LogDensity,
    flow: ParticleFlow | None = None,
    *,
    dim: int | None = None,
    example: Position = None,
    num_particles: int | None = None,
    num_steps: int | str | None = None,
    max_steps: int | None = None,
    initial: PyTree | AbstractStart | str = None,
    seed: int = 0,
    thin: int | None = None,
    metrics: Metrics | None = None,
    metrics_every: int | None = None,
    callback: Callable[[StageState], Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | timedelta = timedelta(minutes=1),
    devices: Devices = None,
    progress: bool = True,
) -> Posterior:
    """Sample from a target by moving particles towards it, and return them as a `Posterior`.

        posterior = nvgd.sample(lambda x: -0.5 * jnp.sum(x**2), dim=2)

    Arguments:
        target: a `Target`, or a log density together with `dim` or `example`.
        flow: `NVGD()`, `SVGD()`, `ULA()`, `SGLD(step_size)` or any `ParticleFlow`; `NVGD()` if
            omitted.
        dim: length of the position, if `target` is a log density of a flat vector.
        example: a position, if `target` is a log density of a pytree.
        num_particles: number of particles. If omitted, as many as `initial` holds, or 256; 100 in
            more than 200 dimensions.
        num_steps: number of steps, or "auto": a run with corrections ends when their chains have
            mixed, other runs when the held-out Stein discrepancy has stayed at the noise level of
            an exact sample for several checks in a row. If omitted, "auto" for runs with
            corrections. Others take 1,000 steps; with minibatches, up to 10,000 for 40 passes over
            all rows.
        max_steps: largest number of steps with "auto"; 10,000 if omitted.
        initial: starting particles, as an array (n, dim) or a pytree like `example` with a leading
            axis n; or a way to draw them: "prior", "laplace" (a normal approximation),
            `Jittered(position)` or `Laplace(...)`. If omitted, particles start as in the model's
            own package, or from N(0, I); near the mode if the target has control variates. Draws
            are repeated where the log density is not finite.
        seed: the same seed gives the same particles.
        thin: keep the particles of every `thin`-th step, and return all of them in order instead
            of only the final particles.
        metrics: functions of the particles (n, dim), by name, evaluated at the start, every
            `metrics_every` steps and at the end.
        metrics_every: steps between evaluations; a hundredth of the run if omitted.
        callback: called with the state at the same steps as the metrics.
        checkpoint: a directory for checkpoints. After any interruption, the same call resumes from
            the latest checkpoint and returns the same particles as an uninterrupted run.
        checkpoint_every: interval between checkpoints, a number of steps or a
            `datetime.timedelta`.
        devices: number of devices to split the particles over, a list of devices, or a
            `device_mesh`, which can also split data rows. If omitted, one device, or all devices of
            all processes if `jax.distributed` is initialised.
        progress: show a progress bar in a terminal or notebook. Elsewhere, such as in a log file, a
            run of more than ten seconds writes occasional lines to standard error.

    Examples:
        >>> posterior = nvgd.sample(lambda x: -0.5 * jnp.sum(x**2), dim=2)
        >>> posterior.draws["x"].shape[2:]
        (2,)
    """
    check_not_traced("nvgd.sample")
    keep_compiled_programs()
    make_room()
    target = as_target(target, dim, example)
    flow = NVGD() if flow is None else flow
    check_kind("flow", flow, ParticleFlow, "NVGD()")
    length = _length(target, flow, num_steps, max_steps)
    check_seed(seed)
    if thin is not None:
        check_count("thin", thin)
        thin = int(thin)
        if thin > length.end:
            raise InputError(f"thin must be at most num_steps, {length.end}, got {thin}.")
    if metrics_every is None:
        metrics_every = max(length.end // 100, 1)
    check_count("metrics_every", metrics_every)
    watch = Monitor(metrics, metrics_every, callback)
    placement = Placement.of(devices)
    checkpoints = None if checkpoint is None else Checkpoints(Path(checkpoint), checkpoint_every)

    particle_key, init_key, run_key = _keys(jax.device_put(np.uint32(seed)))
    batches = target.batches(seed)
    taken = None if batches is None else first_of(batches, 0)
    with (
        heard_interrupts(),
        contextlib.nullcontext() if checkpoints is None else checkpoints.locked(),
        Progress(length.end, is_shown=progress and is_first_process()) as shown,
        one_blas_thread(),
    ):
        with shown.compiling("the log density"), faults.at_the_start():
            particles = starting_particles(target, initial, num_particles, taken, particle_key)
        if not flow.direction.capabilities.noise_share:
            check_apart(particles)
        length.check(len(particles))
        rows = None if target.data is None or target.data.rows is None else target.num_rows
        placement.check(len(particles), rows, target.batch_size)
        stage = flow.for_run(length.legs[0].until_step)
        active = Active("flow", stage, stage.init(target, particles, key=init_key))
        run = Run(length, target, active, run_key, batches, thin, placement)
        if checkpoints is not None:
            settings = {"seed": int(seed), "thin": thin, "metrics": sorted(watch.metrics)}
            checkpoints.resume(run, watch, {**settings, **length.identity})
            if agreed(run.num_steps) != run.num_steps:
                raise InputError(
                    f"the processes see different checkpoints in {str(checkpoint)!r}: choose a "
                    "directory that all of them share."
                )
        if watch.is_due(run.num_steps):
            watch(run.whole_state())
        run.go(watch, checkpoints, shown)
        with shown.compiling("the end of the run"):
            particles = run.finished()
            chains = None if thin is not None else run.chains()
            if chains is not None and run.status == "completed":
                particles = jax.device_put(support_points(chains.positions))
            error = 0.0 if chains is None else run.density_error()
    if run.status != "completed":
        watch.forget_after(run.num_steps)
        warnings.warn(RunStoppedWarning(run.status), stacklevel=2)
    thinned = None if chains is None else chains.thinned()
    state = run.whole_state()
    is_unchanged = particles is state.particles
    # After Ctrl-C in a callback, the callback is not called again.
    if run.status == "completed" or not watch.has_seen(run.num_steps):
        watch(state if is_unchanged else FinalState(particles, state.step))
    if run.kept and run.num_steps == len(run.kept) * (thin or 1):
        run.kept[-1] = np.asarray(particles)

    def replicate(number: int) -> np.ndarray:
        if not (initial is None or isinstance(initial, AbstractStart | str)):
            raise InputError(
                "num_replicates needs other starting particles, and this run started from "
                "particles of your own: sample with initial= one of the ways to draw them, such as "
                "Jittered(position)."
            )
        again = sample_or_interrupt(
            target,
            flow,
            num_particles=len(state.particles),
            num_steps=num_steps,
            max_steps=max_steps,
            initial=initial,
            # Far from consecutive seeds, which a user may choose for further runs.
            seed=(int(seed) + 1_000_003 * number) % 2**32,
            thin=thin,
            devices=own_devices(),
            progress=False,
        )
        return again.flat_positions

    last = run.whole_active()

    def extend(num_draws: int, seed: int) -> Chains:
        return further_draws(last.target(target), last, run.steps_between(thinned), num_draws, seed)

    posterior = Posterior(
        particles=jnp.asarray(np.concatenate(run.kept) if run.kept else particles),
        chains=thinned,
        extend=None if thinned is None else extend,
        notes=tuple(run.notes),
        density_error=error,
        history=run.history_arrays(),
        metrics=watch.records(),
        status=run.status,
        num_kept=max(len(run.kept), 1),
        method=type(flow).__name__,
        num_steps=run.num_steps,
        stages=run.stages(),
        target=target,
        flow=flow,
        state=state,
        flow_state=state if run.active.kind == "flow" else run.flow_state,
        replicate=replicate,
    )
    _warn_unless_converged(posterior, length)
    return posterior


@quickly_compiled
def _keys(seed: UInt32[Array, ""]) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
    """Keys for the starting particles, for the initial state and for the steps."""
    first, second, third = jax.random.split(jax.random.key(seed), 3)
    return first, second, third


def sample_or_interrupt(*arguments: Any, **options: Any) -> Posterior:
    """`sample` for one of many runs: Ctrl-C ends all of them, not only this one."""
    posterior = sample(*arguments, **options)
    if posterior.status.startswith(INTERRUPTED):
        raise KeyboardInterrupt(posterior.status)
    return posterior


def _warn_unless_converged(posterior: Posterior, length: AbstractLength) -> None:
    """Warn of a run that ended although its chains had not mixed, or that had a fault."""
    if posterior.notes or (posterior.completed and length.is_converged is False):
        why = posterior.notes or (f"the run did not converge in {posterior.num_steps} steps",)
        warnings.warn(
            NotConvergedWarning(f"{'; '.join(why)}: posterior.diagnose() says more."), stacklevel=3
        )


def default_num_steps(target: Target) -> int:
    """Number of steps of a run without corrections."""
    if target.batch_size is None:
        return DEFAULT_NUM_STEPS
    wanted = NUM_PASSES * target.num_rows // target.batch_size
    return int(np.clip(wanted, DEFAULT_NUM_STEPS, DEFAULT_MAX_STEPS))


def _length(
    target: Target, flow: ParticleFlow, num_steps: int | str | None, max_steps: int | None
) -> AbstractLength:
    corrects = flow.corrects(target)
    if num_steps is None:
        num_steps = "auto" if corrects else default_num_steps(target)
    if num_steps != "auto":
        if isinstance(num_steps, str):
            raise InputError(f'num_steps must be a whole number or "auto", got {num_steps!r}.')
        check_count("num_steps", num_steps)
        if max_steps is not None:
            raise InputError('max_steps is for num_steps="auto": leave it out.')
        if corrects and not target.is_noisy and num_steps >= FEWEST_FLOW_STEPS:
            return RoundsLength(flow, target, int(num_steps), is_fixed=True)
        return FixedLength(flow, target, int(num_steps))
    max_steps = DEFAULT_MAX_STEPS if max_steps is None else max_steps
    check_count("max_steps", max_steps)
    kind = (
        RoundsLength
        if corrects and max_steps >= FEWEST_FLOW_STEPS + FEWEST_CORRECTIONS
        else QuietLength
    )
    return kind(flow, target, int(max_steps))
