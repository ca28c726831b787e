"""Compiled programs: kept on disk for the next process, dropped in this one when there are many."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax

from nvgd._support.files import cache_directory

# Smaller programs are compiled faster than a cache of thousands of files is looked after.
LEAST_SECONDS = 0.1
# A program of a run takes about 1,400 of the 65,530 maps of memory that Linux grants a process.
MOST_PROGRAMS = 16

Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")

_functions: list[Any] = []


def compiled(function: Callable[Inputs, Output]) -> Callable[Inputs, Output]:
    """`eqx.filter_jit` for functions of a target, with programs that `make_room` can drop."""
    jitted = eqx.filter_jit(function)
    _functions.append(jitted)
    return jitted


def num_programs() -> int:
    """Of the function that has the most."""
    return max((cache._cache_size() for cache in _caches()), default=0)


def make_room() -> None:
    """Drop the programs of all targets if there are many.

    Every log density has programs of its own, which JAX keeps for as long as the process lives. Who
    samples from one after the other (folds of data, simulated data sets) would see the process die
    after some thirty of them, when the operating system has no room for another program.
    """
    if num_programs() <= MOST_PROGRAMS:
        return
    for cache in _caches():
        cache.clear_cache()


def _caches() -> list[Any]:
    # Equinox has no public name for them. One that calls them otherwise keeps all programs, as it
    # does without `make_room`, which the tests would tell.
    found = [getattr(function, "_cached", None) for function in _functions]
    return [cache for cache in found if hasattr(cache, "_cache_size")]


def keep_compiled_programs() -> None:
    """Turn JAX's persistent compilation cache on, in the user's cache directory.

    What the user has set comes first: `JAX_ENABLE_COMPILATION_CACHE=false` switches it off, and
    `JAX_COMPILATION_CACHE_DIR` moves it.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    directory = cache_directory() / "compiled"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        # A home that cannot be written to costs compilation time, not the run.
        return
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
