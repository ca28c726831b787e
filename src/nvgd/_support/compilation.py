"""Compiled programs: cached on disk across processes, and dropped from memory beyond a limit."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax

from nvgd._support.files import cache_directory

# Programs that compile faster than this are not cached on disk: thousands of small files cost more
# than they save.
LEAST_SECONDS = 0.1
# One program of a run takes about 1,400 of the 65,530 memory maps that Linux grants a process.
MOST_PROGRAMS = 16

Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")

_functions: list[Any] = []


def compiled(function: Callable[Inputs, Output]) -> Callable[Inputs, Output]:
    """`eqx.filter_jit` for functions of a target; `make_room` can drop its compiled programs."""
    jitted = eqx.filter_jit(function)
    _functions.append(jitted)
    return jitted


def num_programs() -> int:
    """The largest number of programs that any one function holds."""
    return max((cache._cache_size() for cache in _caches()), default=0)


def make_room() -> None:
    """Drop the compiled programs of all targets if a function holds more than `MOST_PROGRAMS`.

    Every log density has its own programs, which JAX keeps until the process ends. Without this
    function, a process that samples from many targets in turn (cross-validation folds, simulated
    data sets) dies after about thirty of them, when it runs out of memory maps.
    """
    if num_programs() <= MOST_PROGRAMS:
        return
    for cache in _caches():
        cache.clear_cache()


def _caches() -> list[Any]:
    # Equinox has no public access to these caches. If a later version renames them, all programs
    # are kept, and the tests of `make_room` fail.
    found = [getattr(function, "_cached", None) for function in _functions]
    return [cache for cache in found if hasattr(cache, "_cache_size")]


def keep_compiled_programs() -> None:
    """Turn on JAX's persistent compilation cache, in the user's cache directory.

    JAX's own settings take precedence: `JAX_ENABLE_COMPILATION_CACHE=false` switches the cache
    off, and `JAX_COMPILATION_CACHE_DIR` moves it.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    directory = cache_directory() / "compiled"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        # Without a writable home directory, programs are compiled again in every process.
        return
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
