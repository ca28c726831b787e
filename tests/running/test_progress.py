"""Signs of life of a run: what a person sees in a terminal, in a log file, and after Ctrl-C."""

import io
import os
import re
import sys
import threading
import types
from threading import Semaphore

import pytest
from tqdm import tqdm

from nvgd.running import progress as module
from nvgd.running.progress import Progress

PATIENCE = 5  # seconds that a test waits for another thread before it fails


class Screen(io.StringIO):
    """A stream that remembers every line that was ever drawn."""

    def __init__(self, is_terminal=True):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal

    @property
    def lines(self):
        return [line for line in re.split(r"[\r\n]+", self.getvalue()) if line]

    @property
    def last(self):
        return self.lines[-1].rstrip()


class Ticks:
    """Stands in for the clock, and for the event that the thread waits for between two ticks."""

    def __init__(self):
        self.now, self._is_ended = 1000.0, False
        self._arrived, self._may_go = Semaphore(0), Semaphore(0)

    def clock(self):
        return self.now

    def wait(self, timeout):
        self._arrived.release()
        self._may_go.acquire()
        return self._is_ended

    def set(self):
        self._is_ended = True
        self._may_go.release()

    def pass_seconds(self, number):
        """Let the thread tick once per second, and wait until it is done."""
        for _ in range(number):
            assert self._arrived.acquire(timeout=PATIENCE)
            self.now += 1
            self._may_go.release()
            assert self._arrived.acquire(timeout=PATIENCE)
            self._arrived.release()


@pytest.fixture
def ticks(monkeypatch):
    ticks = Ticks()
    monkeypatch.setattr(module, "monotonic", ticks.clock)
    monkeypatch.setattr(module, "Event", lambda: ticks)
    return ticks


@pytest.fixture
def terminal():
    return Screen()


@pytest.fixture
def log_file():
    return Screen(is_terminal=False)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def test_compilation_is_shown_with_its_seconds(terminal, ticks):
    with Progress(1000, stream=terminal) as progress:
        progress.enter_stage("flow")
        with progress.compiling("the flow"):
            seen = []
            for _ in range(3):
                ticks.pass_seconds(1)
                seen.append(terminal.last)
        ticks.pass_seconds(1)
        assert terminal.last.startswith("flow:   0%|")
        with progress.working("reading all 5,000 rows"):
            ticks.pass_seconds(2)
            assert terminal.last.startswith("reading all 5,000 rows, 2 s:   0%|")
    for second, line in enumerate(seen, start=1):
        assert line.startswith(f"compiling the flow, {second} s:   0%|")
        assert line.endswith(f"0/1000 [00:0{second}<?]")


def test_short_compilations_do_not_flicker(terminal, ticks):
    with Progress(1000, stream=terminal) as progress:
        progress.enter_stage("flow")
        for step in range(5):
            with progress.compiling("the flow"):
                ticks.now += 0.9
                progress.advance(step, 1000, {})
    assert len(terminal.lines) >= 5
    assert "compiling" not in terminal.getvalue()


def test_the_bar_says_what_the_stage_is_about(terminal, ticks):
    latest = {"log_density": -12.345, "acceptance": 0.7123, "stein_discrepancy": 0.1}
    with Progress(1000, stream=terminal) as progress:
        progress.enter_stage("flow")
        ticks.now += 20
        progress.advance(250, 1000, {"log_density": "-12.3", "inner_steps": "4"})
        assert terminal.last.startswith("flow:  25%|")
        assert terminal.last.endswith("| 250/1000 [00:20<01:00, log p -12.3]")
        ticks.now += 20
        progress.advance(500, 1000, latest)
        assert terminal.last.endswith("| 500/1000 [00:40<00:40, log p -12.3, accept 0.71]")
        progress.enter_stage("corrections")
        assert terminal.last.startswith("corrections:  50%|")
        assert terminal.last.endswith("| 500/1000 [00:40<?]")
        ticks.now += 10
        progress.advance(600, 800, latest)
        assert terminal.last.endswith("| 600/800 [00:50<00:20, accept 0.71]")


def test_the_remaining_time_leaves_compilation_out(terminal, ticks):
    with Progress(1000, initial=500, stream=terminal) as progress:
        with progress.compiling("the flow"):
            ticks.now += 100
            progress.enter_stage("flow")
            with progress.compiling("a part of it"):
                ticks.now += 100
        ticks.now += 10
        progress.advance(600, 1000, {"log_density": 1.0})
        assert terminal.last.endswith("600/1000 [03:30<00:40, log p 1.0]")
        with progress.compiling("the flow, again"):
            ticks.pass_seconds(60)
            assert terminal.last.endswith("600/1000 [04:30<00:40]")


@pytest.mark.parametrize("number", [-12.345, -1e8, 1e308, -99999.9, float("nan"), -float("inf")])
@pytest.mark.parametrize("stage", ["flow", "corrections"])
def test_every_line_fits_into_80_columns(terminal, ticks, stage, number):
    with Progress(1_000_000, initial=10, stream=terminal) as progress:
        progress.enter_stage(stage)
        with progress.compiling(f"the {stage}"):
            ticks.pass_seconds(2)
        ticks.now += 36_000
        progress.advance(400_000, 1_000_000, {"log_density": number, "acceptance": 0.7123})
        assert terminal.last.endswith("accept 0.71]")  # nothing was cut off
        progress.advance(999_999, 1_000_000, {"log_density": number, "acceptance": number})
    assert len(terminal.lines) > 4
    assert max(map(len, terminal.lines)) <= 80


def test_a_run_that_stops_early_leaves_its_bar_as_it_is(terminal, ticks):
    with Progress(1000, stream=terminal) as progress:
        progress.enter_stage("flow")
        progress.advance(400, 1000, {"log_density": 3.0})
    assert terminal.last.startswith("flow:  40%|")
    assert terminal.last.endswith("400/1000 [00:00<?, log p 3.0]")
    assert terminal.getvalue().endswith("\n")


def test_a_log_file_gets_a_line_now_and_then(log_file, ticks):
    written_at = {}
    with Progress(1000, stream=log_file) as progress:
        progress.enter_stage("flow")
        with progress.compiling("the flow"):
            for second in range(1, 12):
                ticks.pass_seconds(1)
                written_at.setdefault(len(log_file.lines), second)
        progress.advance(400, 1000, {"log_density": -12.345})
        for second in range(12, 2000):
            ticks.pass_seconds(1)
            written_at.setdefault(len(log_file.lines), second)
    assert log_file.lines[:2] == [
        "nvgd: compiling the flow, 10 s",
        "nvgd: step 400 of 1000, 30 s (flow, log p -12.3)",
    ]
    assert list(written_at.values()) == [1, 10, 30, 70, 150, 310, 630, 1230, 1830]
    assert "\r" not in log_file.getvalue()


def test_a_log_file_hears_of_a_new_stage(log_file, ticks):
    with Progress(1000, stream=log_file) as progress:
        progress.enter_stage("flow")
        ticks.pass_seconds(200)
        number = len(log_file.lines)
        progress.enter_stage("corrections")
        ticks.pass_seconds(10)
        progress.enter_stage("corrections")
        ticks.pass_seconds(10)
    assert log_file.lines[number:] == ["nvgd: step 0 of 1000, 201 s (corrections)"]


def test_a_short_run_writes_nothing_into_a_log_file(log_file, ticks):
    with Progress(1000, stream=log_file) as progress:
        progress.enter_stage("flow")
        with progress.compiling("the flow"):
            ticks.pass_seconds(9)
        progress.advance(1000, 1000, {"log_density": 1.0})
    assert log_file.getvalue() == ""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_nothing_is_shown_if_progress_is_off(ticks, is_terminal):
    screen = Screen(is_terminal)
    before = threading.active_count()
    with Progress(1000, is_shown=False, stream=screen) as progress:
        assert threading.active_count() == before
        progress.enter_stage("flow")
        with progress.compiling("the flow"):
            ticks.now += 1000
        progress.advance(10, 1000, {"log_density": 1.0})
    assert screen.getvalue() == ""


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_ends_the_thread_and_the_line(terminal, ticks, error):
    def interrupted():
        with Progress(1000, stream=terminal) as progress:
            progress.enter_stage("flow")
            (ticker,) = [t for t in threading.enumerate() if t.name == "nvgd-progress"]
            assert ticker.daemon
            with progress.compiling("the flow"):
                ticks.pass_seconds(2)
                raise error

    with pytest.raises(error):
        interrupted()
    assert terminal.getvalue().endswith("\n")
    assert all(thread.name != "nvgd-progress" for thread in threading.enumerate())


class Broken(Screen):
    """A terminal whose other end goes away after a while."""

    is_broken = False

    def write(self, text):
        if self.is_broken:
            raise BrokenPipeError(32, "Broken pipe")
        return super().write(text)


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("breaks", ["before", "during", "closed", "none"])
def test_a_stream_that_fails_does_not_disturb_the_run(monkeypatch, ticks, breaks, is_terminal):
    screen = Broken(is_terminal)
    screen.is_broken = breaks == "before"
    if breaks == "none":  # as in a Windows process without a console
        monkeypatch.setattr(sys, "stderr", None)
    has_ended = threading.Event()

    def run():
        with Progress(1000, stream=None if breaks == "none" else screen) as progress:
            progress.enter_stage("flow")
            screen.is_broken = breaks == "during"
            if breaks == "closed":
                screen.close()
            with progress.compiling("the flow"):
                ticks.pass_seconds(30)
            progress.advance(10, 1000, {"log_density": 1.0})
        # Other bars are not blocked either.
        assert list(tqdm([1], file=io.StringIO())) == [1]
        has_ended.set()

    monkeypatch.setattr(tqdm, "monitor_interval", 0)
    runner = threading.Thread(target=run, daemon=True)
    runner.start()
    runner.join(PATIENCE)
    assert has_ended.is_set()


def test_the_thread_ticks_by_itself(monkeypatch):
    has_ticked = threading.Event()

    class Signalling(Screen):
        def write(self, text):
            if text.startswith("nvgd: compiling the flow, "):
                has_ticked.set()
            return super().write(text)

    screen = Signalling(is_terminal=False)
    monkeypatch.setattr(module, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(module, "LEAST_SILENCE", 0.02)
    with Progress(1000, stream=screen) as progress, progress.compiling("the flow"):
        assert has_ticked.wait(PATIENCE)


def test_notebooks_show_a_bar_although_they_are_not_terminals(log_file, ticks, monkeypatch):
    shell = types.SimpleNamespace(kernel=object())
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    with Progress(1000, stream=log_file) as progress:
        progress.enter_stage("flow")
        assert log_file.last.startswith("flow:   0%|")


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("columns", "used"), [(60, 59), (200, 79), (0, 79)])
def test_the_bar_fits_the_terminal(ticks, monkeypatch, columns, used):
    import fcntl
    import struct
    import termios

    ours, theirs = os.openpty()
    rows = 24 if columns else 0  # the size of some terminals is not known
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    with open(ours, "rb", buffering=0) as reader, open(theirs, "w") as screen:
        monkeypatch.setattr(sys, "stderr", screen)
        with Progress(1000) as progress:
            progress.enter_stage("flow")
            ticks.pass_seconds(1)
        lines = re.split(r"[\r\n]+", reader.read(65536).decode())
    assert max(map(len, lines)) == used
