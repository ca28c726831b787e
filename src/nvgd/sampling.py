"""The host's side of a run: compiled chunks of steps, progress, history, faults."""

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from nvgd.chunks import CAPACITY, advance
from nvgd.data import EpochShuffle
from nvgd.errors import InputError, check_callable, check_count, check_kind
from nvgd.flow import NVGD, FlowInfo, FlowState, ParticleFlow
from nvgd.initialisation import check_start, num_faulty, starting_particles
from nvgd.posterior import Posterior
from nvgd.target import LogDensity, Position, Target, as_target

# The progress bar moves, and Ctrl-C is answered, about this often.
SECONDS_PER_CHUNK = 0.25

Metrics = Mapping[str, Callable[[Float[Array, "n d"]], Any]]


class RunStopped(UserWarning):
    """A run that ended before its last step, at its last good state."""


def sample(
    target: Target | LogDensity,
    flow: ParticleFlow | None = None,
    *,
    dim: int | None = None,
    example: Position = None,
    num_particles: int | None = None,
    num_steps: int = 1000,
    initial: PyTree = None,
    seed: int = 0,
    thin: int | None = None,
    metrics: Metrics | None = None,
    metrics_every: int | None = None,
    callback: Callable[[FlowState], Any] | None = None,
    progress: bool = True,
) -> Posterior:
    """Move particles from their start to the target and return them as a `Posterior`.

        posterior = nvgd.sample(lambda x: -0.5 * jnp.sum(x**2), dim=2)

    Arguments:
        target: a `Target`, or a bare log density with `dim` or `example`.
        flow: `NVGD()`, `SVGD()`, `ULA()`, `SGLD(step_size)` or any `ParticleFlow`.
        num_particles: 100 unless `initial` says otherwise.
        initial: starting particles, an array (n, dim) or a pytree like `example` with a leading
            axis n; draws from N(0, I) if omitted.
        seed: the same seed gives the same particles.
        thin: keep the particles of every `thin`-th step and return all that were kept, in order,
            instead of only the last ones.
        metrics: functions of the particles (n, dim), evaluated at the start, every
            `metrics_every` steps and at the end.
        metrics_every: a hundredth of the run if omitted.
        callback: called with the state at the same moments.
        progress: show a bar; nothing is shown when the output is not a terminal.
    """
    target = as_target(target, dim, example)
    flow = NVGD() if flow is None else flow
    check_kind("flow", flow, ParticleFlow, "NVGD()")
    check_count("num_steps", num_steps)
    check_count("seed", seed, minimum=0)
    if seed >= 2**63:
        raise InputError(f"seed must be below 2⁶³, got {seed}.")
    if thin is not None:
        check_count("thin", thin)
        thin = int(thin)
        if thin > num_steps:
            raise InputError(f"thin must be at most num_steps, {num_steps}, got {thin}.")
    if metrics_every is None:
        metrics_every = max(num_steps // 100, 1)
    check_count("metrics_every", metrics_every)
    if metrics is not None and (not isinstance(metrics, Mapping) or "step" in metrics):
        raise InputError(
            "metrics must map names other than 'step', which is taken, to functions of the "
            f"particles, got {metrics!r}."
        )
    for name, metric in (metrics or {}).items():
        check_callable(f"metrics[{name!r}]", metric)
    check_callable("callback", callback, optional=True)

    particle_key, init_key, run_key = jax.random.split(jax.random.key(seed), 3)
    particles = starting_particles(target, initial, num_particles, particle_key)
    shuffle = None
    if target.batch_size is not None:
        shuffle = EpochShuffle(target.num_rows, target.batch_size, seed)
    check_start(target, particles, None if shuffle is None else shuffle.rows(0, 1)[0])

    state = flow.init(target, particles, key=init_key)
    run = _Run(flow, target, state, run_key, shuffle, thin)
    watch = _Watch(dict(metrics or {}), metrics_every, callback)
    watch(run.state)
    run.go(num_steps, watch, progress)
    if run.status == "completed":
        run.check_end()
    if run.status != "completed":
        watch.forget_after(run.num_steps)
        warnings.warn(RunStopped(run.status), stacklevel=2)
    watch(run.state, is_last=True)
    particles = np.concatenate(run.kept) if run.kept else run.state.particles
    return Posterior(
        particles=jnp.asarray(particles),
        target=target,
        flow=flow,
        state=run.state,
        history=run.history(),
        metrics=watch.records(),
        status=run.status,
    )


class _Run:
    """A run in progress: its state, what has been recorded, and how it ended."""

    def __init__(
        self,
        flow: ParticleFlow,
        target: Target,
        state: FlowState,
        key: PRNGKeyArray,
        shuffle: EpochShuffle | None,
        thin: int | None,
    ):
        self.flow, self.target, self.key = flow, target, key
        self.shuffle, self.thin = shuffle, thin
        self.state, self.previous = state, state
        self.status = "completed"
        self.kept: list[np.ndarray] = []
        self._infos: list[FlowInfo] = []

    def go(self, num_steps: int, watch: "_Watch", progress: bool) -> None:
        """Step until the end or the first fault."""
        from tqdm import tqdm

        step, length = 0, 1
        # tqdm's None: no bar unless the output is a terminal.
        with tqdm(
            total=num_steps,
            desc=type(self.flow).__name__,
            unit="step",
            disable=None if progress else True,
            dynamic_ncols=True,
        ) as bar:
            while step < num_steps and self.status == "completed":
                ends = (length, num_steps - step, watch.steps_until_next(step))
                started = time.perf_counter()
                taken = self._chunk(step, min(ends))
                seconds = time.perf_counter() - started
                step += taken
                bar.update(taken)
                bar.set_postfix(self._latest(), refresh=False)
                if step < num_steps and self.status == "completed":
                    watch(self.state)
                if seconds < SECONDS_PER_CHUNK / 2:
                    length = min(2 * length, CAPACITY)
                elif seconds > 2 * SECONDS_PER_CHUNK:
                    length = max(length // 2, 1)

    def _chunk(self, step: int, length: int) -> int:
        rows = None
        if self.shuffle is not None:
            rows = np.zeros((CAPACITY, self.shuffle.batch_size), np.int32)
            rows[:length] = self.shuffle.rows(step, length)
        chunk = advance(
            self.flow,
            self.target,
            self.state,
            self.previous,
            None if rows is None else jnp.asarray(rows),
            jnp.array(length),
            thin=self.thin,
            key=self.key,
        )
        tried = int(chunk.length)
        # Cut on the host: on the device every length would be a program of its own.
        infos = jax.tree.map(lambda leaf: np.asarray(leaf)[:tried], chunk.infos)
        self.state, self.previous = chunk.state, chunk.previous
        taken = tried if chunk.healthy else tried - 1
        if self.thin is not None and chunk.kept is not None:
            first, last = step // self.thin, (step + taken) // self.thin
            self.kept.extend(np.asarray(chunk.kept)[: last - first])
        if not chunk.healthy:
            self._fail(step + tried, jax.tree.map(lambda leaf: leaf[-1], infos))
        self._infos.append(jax.tree.map(lambda leaf: leaf[:taken], infos))
        return taken

    @property
    def num_steps(self) -> int:
        """Steps behind the present state."""
        return int(self.state.step)

    def check_end(self) -> None:
        """Fall back by a step if the log density is not finite where the last one ended."""
        rows = None if self.shuffle is None else self.shuffle.rows(self.num_steps, 1)[0]
        faulty = num_faulty(self.target, self.state.particles, rows)
        if faulty:
            self._blame_log_density(self.num_steps, faulty)

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
            "returned. Try a smaller step size, or check the log density far from its mode."
        )

    def _latest(self) -> dict[str, str]:
        info = self._infos[-1]
        shown = {"log_density": info.log_density, **info.diagnostics}
        return {name: f"{values[-1]:.3g}" for name, values in shown.items() if len(values)}

    def history(self) -> dict[str, np.ndarray]:
        """One array a quantity, one entry a step taken."""
        infos = jax.tree.map(lambda *parts: np.concatenate(parts)[: self.num_steps], *self._infos)
        return {
            "log_density": infos.log_density,
            "step_norm": infos.step_norm,
            "num_gradients": np.cumsum(infos.num_gradients, dtype=np.int64),
            **infos.diagnostics,
        }


class _Watch:
    """The user's metrics and callback, at the start, every so many steps, and at the end."""

    def __init__(self, metrics: Metrics, every: int, callback: Callable[[FlowState], Any] | None):
        self.metrics, self.every, self.callback = metrics, every, callback
        self._rows: list[dict[str, float]] = []

    def steps_until_next(self, step: int) -> int:
        """How far a chunk may go before the user wants to look."""
        if not self.metrics and self.callback is None:
            return CAPACITY
        return self.every - step % self.every

    def __call__(self, state: FlowState, *, is_last: bool = False) -> None:
        step = int(state.step)
        if step % self.every and not is_last:
            return
        if self._rows and self._rows[-1]["step"] == step:
            return
        row: dict[str, float] = {"step": step}
        for name, metric in self.metrics.items():
            try:
                row[name] = float(metric(state.particles))
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"metrics[{name!r}] must map particles to a number: {error}."
                ) from error
        self._rows.append(row)
        if self.callback is not None:
            self.callback(state)

    def forget_after(self, step: int) -> None:
        """Drop what was measured at states that turned out to be faulty."""
        self._rows = [row for row in self._rows if row["step"] <= step]

    def records(self) -> dict[str, np.ndarray]:
        """One array a metric, and `step`."""
        return {name: np.array([row[name] for row in self._rows]) for name in self._rows[0]}
