"""Compiled programs on the user's disk, so that a new process need not compile them again."""

import contextlib
import functools
import hashlib
import os
import platform
import stat
import warnings
from pathlib import Path

import jax

from nvgd._support.files import cache_directory

# Programs that compile faster than this are not kept: thousands of small files cost more than they
# save.
LEAST_SECONDS = 0.05
# The oldest programs are deleted beyond this total.
MOST_BYTES = 512 * 2**20


def keep_compiled_programs() -> None:
    """Turn on JAX's persistent compilation cache, in a directory that only its owner can enter.

    JAX's own settings take precedence: `JAX_ENABLE_COMPILATION_CACHE=false` switches the cache
    off, and `JAX_COMPILATION_CACHE_DIR` moves it. JAX finds a program by its content, its compiler
    options and the version of XLA, so a stale one is never used. Without a directory that is safe,
    programs are compiled again in every process.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    directory = cache_directory() / "compiled" / _machine()
    with contextlib.suppress(OSError):
        for place in (directory.parent, directory):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(place):
                return
        _delete_oldest(directory.parent)
        jax.config.update("jax_compilation_cache_dir", str(directory))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
        # JAX writes a program in place. A process that reads an incomplete one compiles it itself,
        # and the warning would only confuse.
        warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry")


def _is_private(directory: Path) -> bool:
    """Whether only this user can write here: a program of another user would be foreign code."""
    if not hasattr(os, "getuid"):
        return True
    about = directory.lstat()
    is_own = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
    return is_own and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@functools.cache
def _machine() -> str:
    """A name for this kind of processor, since different machines may share a home directory."""
    text = f"{platform.machine()} {platform.processor()} {jax.__version__}"
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        kinds = ("flags", "model name", "Features")
        text += " ".join(sorted({line for line in lines if line.startswith(kinds)}))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _delete_oldest(directory: Path) -> None:
    """Delete the files that were used longest ago, until the rest is within the limit.

    Empty files, which a process leaves that is killed while it writes, are deleted in any case: JAX
    would neither use nor replace them.
    """
    files = []
    for path in directory.rglob("*"):
        # Another process may delete it first.
        with contextlib.suppress(OSError):
            about = path.stat()
            if stat.S_ISREG(about.st_mode):
                files.append((max(about.st_atime, about.st_mtime), about.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if size and total <= MOST_BYTES:
            continue
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size
