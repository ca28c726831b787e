import gc
import os
import tempfile
import warnings

# Pictures are drawn to files only.
os.environ.setdefault("MPLBACKEND", "agg")
# Most of the suite's time is compilation, of programs that run for a moment: this way it takes a
# quarter of the time. Processes that tests start inherit it.
_fast_compilation = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_fast_compilation}"
# A core for each of pytest's processes: threads of one that wait for work slow the other down.
_worker = os.environ.get("PYTEST_XDIST_WORKER")
if _worker is not None and hasattr(os, "sched_setaffinity"):
    _cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {_cores[int(_worker.removeprefix("gw")) % len(_cores)]})
# Programs that several tests need are compiled once, by one of pytest's processes or one that a
# test starts, however small they are: single operations outside `jax.jit` are most of them. Nothing
# is left in the user's cache.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    # Pytest's processes inherit the first one's.
    _cache = tempfile.TemporaryDirectory(prefix="nvgd-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _cache.name
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
if _worker is None:
    # On its first import of a day, ArviZ 0.x writes a file, and two processes that do so at once
    # fail. Here, pytest's other processes have not started yet.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz  # noqa: F401

# What `make test-quick` leaves out: real models, experiments, other processes, long runs.
SLOW = (
    "cli/test_report.py",
    "cli/test_sample_command.py",
    "exact/test_corrections.py",
    "exact/test_low_rank_frame.py::converges",
    "experiments/",
    "flow/test_capped.py",
    "flow/test_combinations.py",
    "flow/test_conformance.py",
    "flow/test_coordinates.py::driver",
    "flow/test_extensions.py",
    "flow/test_recovery.py",
    "frontends/",
    "posterior/test_arviz.py",
    "posterior/test_diagnostics.py::improper",
    "posterior/test_posterior.py::further_draws",
    "posterior/test_transport.py",
    "running/test_checkpoints.py",
    "running/test_faults.py::corrections",
    "running/test_faults.py::resumes",
    "running/test_fuzz.py",
    "running/test_rounds.py::test_a_run",
    "running/test_rounds.py::announced",
    "support/test_devices.py",
    "support/test_processes.py",
    "stein/test_stein.py::closed_form",
    "support/test_compilation.py",
    "targets/test_data.py::control_variates",
    "targets/test_models.py",
    "test_docs.py::test_examples",
    "test_docs.py::test_snippets_run",
    "test_gallery.py",
    "test_package.py::test_demo",
)


# The longest tests and groups of tests, which begin first: otherwise, one process could end long
# after the other.
FIRST = (
    "running/test_rounds.py",
    "support/test_processes.py",
    "experiments/",
    "test_sklearn.py::accepts",
    "test_docs.py::README",
    "targets/test_subsamples.py",
    "frontends/test_frontends.py::behave",
    "running/test_bad_input.py",
    "support/test_devices.py",
)


def is_among(item, names):
    """Whether all parts of one of the names are in the name of the test."""
    name = item.nodeid.replace("[", "::")
    return any(all(part in name for part in parts.split("::")) for parts in names)


def pytest_collection_modifyitems(items):
    """Mark the tests that only the whole suite runs, and put the longest first."""
    for item in items:
        if is_among(item, SLOW):
            item.add_marker("slow")
    items.sort(key=lambda item: not is_among(item, FIRST))


def pytest_collection_finish():
    """Search for garbage rarely, and not in what has been imported: a twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 5)
