"""Progress of a run: a bar in a terminal or notebook, occasional lines elsewhere."""

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Event, Thread
from time import monotonic
from typing import Any

# Interval of updates by the thread. Shorter compilations are not shown.
TICK_SECONDS = 1.0
# Least interval between drawings of the bar by `advance`.
DRAW_SECONDS = 0.1
# Seconds between lines where there is no bar. They double with every line of a stage.
LEAST_SILENCE, MOST_SILENCE = 10.0, 600.0
# Not 80: some terminals begin a new line after the last column.
WIDTH = 79
BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
# The quantities that are shown, with their labels and number formats.
QUANTITIES = {"log_density": ("log p", ".1f"), "acceptance": ("accept", ".2f")}
# Stages that show only some of them.
OF_STAGE = {"corrections": ("acceptance",)}


class Progress:
    """Shows the progress of a run, also while a program is being compiled.

        with Progress(total=1000) as progress:
            progress.enter_stage("flow")
            with progress.compiling("the flow"):
                ...
            progress.advance(step=25, total=1000, latest={"log_density": -12.3})

    A terminal or notebook shows a bar, updated at least once per second. Anything else, such as a
    log file, gets a line after 10, 30, 70, ... seconds, hence none during a short run. A display
    that fails does not disturb the run. The thread that updates it ends with the context.

    Arguments:
        total: number of steps of the run.
        initial: number of steps taken before, if the run resumes from a checkpoint.
        is_shown: False shows nothing.
        stream: where to write; standard error if omitted.
    """

    def __init__(self, total: int, initial: int = 0, is_shown: bool = True, stream: Any = None):
        self._total, self._step, self._is_shown = total, initial, is_shown
        self._started = self._last_drawn = self._last_written = monotonic()
        self._silence, self._stage = LEAST_SILENCE, ""
        self._stage_first_step, self._stage_started = initial, self._started
        self._latest: Mapping[str, Any] = {}
        self._activity: tuple[str, float] | None = None
        self._stream = sys.stderr if stream is None else stream
        self._bar: Any = None
        self._ended = Event()
        self._ticker = Thread(target=self._tick, name="nvgd-progress", daemon=True)

    def __enter__(self) -> "Progress":
        if self._is_shown:
            with suppress(Exception):
                if _is_notebook() or self._stream.isatty():
                    self._bar = _make_bar(self._total, self._step, self._stream)
            self._ticker.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._is_shown:
            self._ended.set()
            self._ticker.join()
            self._draw()
            with suppress(Exception):
                self._bar.close()  # leaves the cursor on a new line

    def enter_stage(self, stage: str) -> None:
        """Name the stage of the next steps; has no effect if it is the current one."""
        if stage == self._stage:
            return
        self._stage, self._latest, self._silence = stage, {}, LEAST_SILENCE
        self._stage_first_step, self._stage_started = self._step, monotonic()
        self._draw()

    def compiling(self, what: str) -> AbstractContextManager[None]:
        """Show that `what` is being compiled, and for how long, while the block runs."""
        return self.working(f"compiling {what}")

    @contextmanager
    def working(self, activity: str) -> Iterator[None]:
        """Show an activity other than steps, and for how long it lasts, while the block runs."""
        outer, started = self._activity, monotonic()
        self._activity = activity, started
        try:
            yield
        finally:
            self._activity = outer
            # As if the stage had started later: the remaining time depends on its steps alone.
            self._stage_started += monotonic() - max(started, self._stage_started)

    def advance(self, step: int, total: int, latest: Mapping[str, Any]) -> None:
        """Show that `step` steps out of `total` have been taken, and the latest quantities.

        Arguments:
            step: number of steps since the beginning of the run.
            total: number of steps of the run, which can change on the way.
            latest: the latest values in the history, by name.
        """
        self._step, self._total, self._latest = step, total, latest
        if monotonic() - self._last_drawn >= DRAW_SECONDS:
            self._draw()

    def _tick(self) -> None:
        while not self._ended.wait(TICK_SECONDS):
            self._draw()
            self._write_line()

    def _draw(self) -> None:
        if self._bar is None:
            return
        bar, now = self._bar, monotonic()
        self._last_drawn = now
        with suppress(Exception):
            activity = self._activity_text(now)
            bar.n, bar.desc = self._step, activity or self._stage
            bar.postfix = "" if activity else ", ".join(self._quantities())
            bar.timing = {"elapsed": now - self._started, "rate": self._rate(now)}
            bar.total = self._total
            if hasattr(bar, "container"):  # the widget of a notebook, which has its own total
                bar.container.children[1].max = self._total
            bar.refresh()

    def _write_line(self) -> None:
        now = monotonic()
        if self._bar is not None or now - self._last_written < self._silence:
            return
        self._last_written, self._silence = now, min(2 * self._silence, MOST_SILENCE)
        with suppress(Exception):
            steps = f"step {self._step} of {self._total}, {int(now - self._started)} s"
            details = ", ".join(filter(None, (self._stage, *self._quantities())))
            text = self._activity_text(now) or (f"{steps} ({details})" if details else steps)
            self._stream.write(f"nvgd: {text}\n")
            self._stream.flush()

    def _activity_text(self, now: float) -> str:
        activity, started = self._activity or ("", now)
        seconds = now - started
        return f"{activity}, {int(seconds)} s" if seconds >= TICK_SECONDS else ""

    def _quantities(self) -> list[str]:
        latest, names = self._latest, OF_STAGE.get(self._stage, tuple(QUANTITIES))
        return [_as_text(name, float(latest[name])) for name in names if name in latest]

    def _rate(self, now: float) -> float:
        """Steps per second of this stage, compilation left out; 0 if unknown."""
        _, until = self._activity or ("", now)
        seconds = until - self._stage_started
        return (self._step - self._stage_first_step) / seconds if seconds > 0 else 0.0


def _as_text(name: str, number: float) -> str:
    label, spec = QUANTITIES[name]
    return f"{label} {number:{spec if abs(number) < 1e5 else '.1e'}}"


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def _make_bar(total: int, initial: int, stream: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without ipywidgets gets a bar of text
        from tqdm.auto import tqdm

    class Bar(tqdm):
        monitor_interval = 0  # no thread of tqdm's own, which would outlive the run
        timing = {"elapsed": 0.0, "rate": 0.0}  # noqa: RUF012, replaced as a whole

        @property
        def format_dict(self) -> dict[str, Any]:
            columns = None if hasattr(self, "container") else _columns(stream)
            return {**super().format_dict, **self.timing, "ncols": columns}

        def refresh(self, nolock: bool = False, lock_args: Any = None) -> Any:
            # tqdm does not release its lock if it is interrupted, and other threads wait forever.
            with self.get_lock():
                return super().refresh(nolock=True)

    # Without `nrows`, tqdm draws nothing in a terminal that does not know its size. The dynamic
    # width lets the widget of a notebook fill its cell.
    size = {"ncols": WIDTH, "nrows": 20, "dynamic_ncols": _is_notebook()}
    return Bar(total=total, initial=initial, file=stream, bar_format=BAR, **size)


def _columns(stream: Any) -> int:
    columns = 0
    with suppress(Exception):
        columns = os.get_terminal_size(stream.fileno()).columns
    return min(columns - 1, WIDTH) if columns > 0 else WIDTH
