"""What a posterior of the development set is."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Array, Float

from nvgd.errors import InputError

LogDensity = Callable[[Float[Array, " d"]], Float[Array, ""]]


class DataMissing(InputError):
    """The data of a posterior are not on this machine; it is left out."""


@dataclasses.dataclass(frozen=True)
class Reparametrisation:
    """Coordinates z in which the posterior is easy for NUTS; its own are x = `restore`(z)."""

    restore: Callable[[Float[Array, " d"]], Float[Array, " d"]]
    log_jacobian: Callable[[Float[Array, " d"]], Float[Array, ""]]
    """log |det ∂x/∂z|, up to a constant."""


@dataclasses.dataclass(frozen=True)
class BenchmarkPosterior:
    """A log density on R^d, up to a constant, and the way to its reference draws.

    Data enter the log densities as double-precision NumPy constants, so that the same function
    is exact under JAX's 64-bit mode and rounds them to single precision without it.
    """

    name: str
    dim: int
    description: str
    log_density: LogDensity
    draw: Callable[[int, int], np.ndarray] | None = None
    """Exact, independent draws (n, d) from a seed and n; None where only NUTS will do."""
    easy: Reparametrisation | None = None
    """For NUTS; the posterior's own coordinates if omitted."""


Builder = Callable[[Path | None], BenchmarkPosterior]


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """JAX's 64-bit mode for a while."""
    with jax.enable_x64(True):
        yield
    # JAX hands traces with double-precision constants on to single-precision callers.
    jax.clear_caches()


def uci_table(name: str, data_dir: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Features and outcome, the last column, of a UCI regression set."""
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
    """Features and outcome of a set that comes with scikit-learn."""
    try:
        from sklearn import datasets  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise DataMissing(
            f"{name} comes with scikit-learn, which is not installed: `pip install scikit-learn`."
        ) from error
    features, outcome = getattr(datasets, f"load_{name}")(return_X_y=True, **options)
    return np.asarray(features, np.float64), np.asarray(outcome, np.float64)
