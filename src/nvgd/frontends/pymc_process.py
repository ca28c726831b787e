"""Side effects of PyMC and PyTensor on the process, contained: precision, logs, C compilation."""

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import jax

from nvgd._support.errors import optional_import

# Modules whose import changes settings of JAX.
_CHANGES_JAX = ("pymc.sampling.jax", "pytensor.link.jax.dispatch")


@contextmanager
def pymc_for_jax() -> Iterator[Any]:
    """The module `pymc.sampling.jax`, without the changes to the process that its import makes.

    The import enables 64 bits and asks for 100 CPU devices; both are reset. PyMC's own samplers
    for JAX need the 64 bits and enable them by the same import. Modules that were imported here
    are therefore removed on exit, so that PyMC's import runs again.
    """
    flags = os.environ.get("XLA_FLAGS")
    with ThreadPoolExecutor(1) as pool:
        # The setting of the process: a `with jax.enable_x64` changes this thread's only.
        is_64_bit = pool.submit(lambda: jax.config.read("jax_enable_x64")).result()
    known = set(sys.modules)
    try:
        module = optional_import("pymc.sampling.jax", "pymc", "from_pymc")
    finally:
        jax.config.update("jax_enable_x64", is_64_bit)
        if flags is None:
            os.environ.pop("XLA_FLAGS", None)
        else:
            os.environ["XLA_FLAGS"] = flags
    try:
        yield module
    finally:
        for name in set(sys.modules) - known:
            if name.startswith(_CHANGES_JAX):
                _forget(name)


def _forget(module: str) -> None:
    """Make Python import this module again at its next import statement."""
    del sys.modules[module]
    package, _, name = module.rpartition(".")
    if package in sys.modules:
        vars(sys.modules[package]).pop(name, None)


@contextmanager
def without_dtype_warnings() -> Iterator[None]:
    """Silence JAX about dtypes of PyMC's graphs, which request 64 bits whatever JAX's precision."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Explicitly requested dtype")
        yield


@contextmanager
def without_compiler() -> Iterator[None]:
    """Let PyTensor run small graphs in Python: compiling C for them takes half a minute."""
    from pytensor.configdefaults import config

    with config.change_flags(cxx="", mode="FAST_COMPILE"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pytensor")
        yield


@contextmanager
def quiet_log(name: str) -> Iterator[None]:
    """Let only warnings and errors of this package's log through."""
    log = logging.getLogger(name)
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)
