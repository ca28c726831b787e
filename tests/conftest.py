import os

# Pictures are drawn to files only, and the suite's own processes share two cores.
os.environ.setdefault("MPLBACKEND", "agg")
# The suite leaves nothing in the user's cache.
os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")
