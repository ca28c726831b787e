import os

# Pictures are drawn to files only, and the suite's own processes share two cores.
os.environ.setdefault("MPLBACKEND", "agg")
