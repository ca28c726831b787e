"""Ctrl-C while a command compiles, in a process of its own."""

import os
import subprocess
import sys

import pytest

MODEL = """
import jax.numpy as jnp
def log_density(x):
    return -0.5 * (x[0] ** 2 + (2 * x[1] - x[0] ** 2) ** 2)
"""

# XLA has compiled for a while when the signal comes: programs of the flow take seconds.
INTERRUPTED = """
import os, signal, sys, threading, time
import jax
from nvgd.cli import program

def heard(name, duration, **_):
    global number
    if name == "/jax/core/compile/jaxpr_to_mlir_module_duration":
        number += 1
        if number == 9:
            threading.Thread(target=press, daemon=True).start()

def press():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)

number = 0
# What is started in the background inherits that it is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
jax.monitoring.register_event_duration_secs_listener(heard)
program()
"""


@pytest.mark.slow
def test_ctrl_c_during_compilation_ends_with_a_sentence(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    command = [sys.executable, "-c", INTERRUPTED, "sample", "model.py:log_density", "--dim", "2"]
    ended = subprocess.run(
        [*command, "--out", "out"],
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "empty")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 130
    assert ended.stderr.splitlines()[-1].startswith("nvgd: interrupted ")
    assert "Traceback" not in ended.stderr
