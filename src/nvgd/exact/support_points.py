"""A few draws that represent many: one of every chain, spread as evenly as possible."""

import numpy as np
from jaxtyping import Float

from nvgd._support.blas_threads import on_one_thread

# Draws that stand for the target in energy distances, and most candidates of a chain and of all
# chains together.
MOST_POOLED = 2048
MOST_PER_CHAIN = 16
MOST_CANDIDATES = 2**15
# Passes over the chains, in each of which every chain chooses anew.
NUM_SWEEPS = 2


@on_one_thread
def support_points(positions: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n d"]:
    """One of the k draws of each of n chains, such that the n together represent all draws.

    The energy distance between the chosen draws and all draws,

        2 E|X − Y| − E|X − X'| − E|Y − Y'|,   X chosen, Y any draw,

    is minimised by one chain after another (support points; Mak and Joseph, 2018). Draws chosen so
    represent the target better than as many independent ones: gaps and clusters cancel.
    """
    num_chains, length, dim = positions.shape
    most = max(min(MOST_PER_CHAIN, MOST_CANDIDATES // num_chains), 1)
    stride = -(-length // most)
    candidates = positions[:, ::-1][:, ::stride]
    if candidates.shape[1] == 1:
        return candidates[:, 0]
    flat = np.asarray(candidates).reshape(-1, dim)
    # Squares of an improper target's draws overflow in single precision.
    centre = flat.mean(axis=0, dtype=np.float64)
    scale = np.maximum(flat.std(axis=0, dtype=np.float64), 1e-30)
    flat = ((flat - centre) / scale).astype(np.float32)
    pool = np.asarray(positions).reshape(-1, dim)
    pool = ((pool[:: -(-len(pool) // MOST_POOLED)] - centre) / scale).astype(np.float32)
    far = _distances(flat, pool).mean(axis=1).reshape(num_chains, -1)
    flat = flat.reshape(num_chains, -1, dim)
    # Start from the last draw of each chain.
    places = np.zeros(num_chains, int)
    chosen = flat[:, 0].copy()
    for _ in range(NUM_SWEEPS):
        before = places.copy()
        for i in range(num_chains):
            between = _distances(flat[i], chosen)
            near = between.sum(axis=1) - between[:, i]
            places[i] = int(np.argmin(far[i] - near / num_chains))
            chosen[i] = flat[i, places[i]]
        if np.array_equal(before, places):
            break
    return candidates[np.arange(num_chains), places]


def _distances(
    x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "m d"]
) -> Float[np.ndarray, "n m"]:
    """|xᵢ − yⱼ|."""
    squares = (-2 * x) @ y.T
    squares += np.sum(x**2, axis=1)[:, None]
    squares += np.sum(y**2, axis=1)
    return np.sqrt(np.maximum(squares, 0.0, out=squares), out=squares)
