"""Parts that the models share: priors, features, groups."""

from typing import Any

import jax.numpy as jnp
import numpy as np


def normal(x: Any, scale: Any = 1.0) -> Any:
    """Log density of independent normal variables, up to a constant that depends on `scale`."""
    return -0.5 * jnp.sum((x / scale) ** 2)


def features(
    rng: np.random.Generator, num_rows: int, num_columns: int, correlation: float = 0.5
) -> np.ndarray:
    """Normal features of which every two have the same correlation."""
    common = rng.normal(size=(num_rows, 1))
    own = rng.normal(size=(num_rows, num_columns))
    return np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own


def single(**rows: np.ndarray) -> dict[str, np.ndarray]:
    """The rows in single precision."""
    return {
        n: x.astype(np.float32) if x.dtype.kind == "f" else x.astype(np.int32)
        for n, x in rows.items()
    }


def groups(rng: np.random.Generator, num_groups: int, smallest: float, num_rows: int) -> np.ndarray:
    """Group of every row; expected sizes from `smallest` in geometric progression."""
    largest = 2 * num_rows / num_groups
    while True:
        sizes = np.geomspace(smallest, largest, num_groups)
        if sizes.sum() >= num_rows:
            break
        largest *= 1.1
    return rng.choice(num_groups, size=num_rows, p=sizes / sizes.sum())
