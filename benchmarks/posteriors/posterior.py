"""A posterior of the benchmark, and the data that some of them need."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Array, Float

from nvgd._support.errors import InputError

LogDensity = Callable[[Float[Array, " d"]], Float[Array, ""]]


class DataMissing(InputError):
    """The data of a posterior are missing on this machine."""


@dataclasses.dataclass(frozen=True)
class Reparametrisation:
    """Coordinates z in which NUTS samples the posterior well; x = `restore`(z)."""

    restore: Callable[[Float[Array, " d"]], Float[Array, " d"]]
    log_jacobian: Callable[[Float[Array, " d"]], Float[Array, ""]]
    """log |det ∂x/∂z|, up to a constant."""


@dataclasses.dataclass(frozen=True)
class BenchmarkPosterior:
    """A log density on R^d, up to a constant, and how its reference draws are made.

    Data enter the log density as NumPy constants in double precision: JAX's 64-bit mode uses them
    as they are, and single precision rounds them.
    """

    name: str
    dim: int
    description: str
    log_density: LogDensity
    draw: Callable[[int, int], np.ndarray] | None = None
    """Exact, independent draws (n, d) from a seed and n; None if the reference is by NUTS."""
    easy: Reparametrisation | None = None
    """The coordinates for NUTS; those of the posterior if omitted."""


Builder = Callable[[Path | None], BenchmarkPosterior]


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """JAX's 64-bit mode inside the context."""
    with jax.enable_x64(True):
        yield
    # Otherwise JAX would reuse traces with double-precision constants in single precision.
    jax.clear_caches()


def uci_table(name: str, data_dir: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Features, and outcome in the last column, of a UCI regression set."""
    directory = os.environ.get("NVGD_DATA_DIR") if data_dir is None else data_dir
    path = None if directory is None else Path(directory) / "uci_regression.npz"
    if path is None or not path.is_file():
        raise DataMissing(
            "uci_regression.npz is not here: pass --data-dir or set NVGD_DATA_DIR to the "
            f"directory that holds it, got {directory!r}."
        )
    with np.load(path, allow_pickle=False) as stored:
        table = stored[name]
    return table[:, :-1], table[:, -1]


def scikit_learn_table(name: str, **options: bool) -> tuple[np.ndarray, np.ndarray]:
    """Features and outcome of a data set of scikit-learn."""
    try:
        from sklearn import datasets  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise DataMissing(
            f"{name} comes with scikit-learn, which is not installed: `pip install scikit-learn`."
        ) from error
    features, outcome = getattr(datasets, f"load_{name}")(return_X_y=True, **options)
    return np.asarray(features, np.float64), np.asarray(outcome, np.float64)
