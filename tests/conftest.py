import os

# Pictures are drawn to files only, and the suite's own processes share two cores.
os.environ.setdefault("MPLBACKEND", "agg")
# Most of the suite's time is compilation, of programs that run for a moment.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=1"
# The suite leaves nothing in the user's cache.
os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")
