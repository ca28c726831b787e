"""Compiled programs kept on disk, so that a second run of the same shapes starts at once."""

import jax

from nvgd.files import cache_directory

# Smaller programs are compiled faster than a cache of thousands of files is looked after.
LEAST_SECONDS = 0.1


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
