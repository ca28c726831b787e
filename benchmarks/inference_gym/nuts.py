"""NUTS with the gradients of a run of NVGD: 256 × 2000, warm-up included."""

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from benchmarks.inference_gym.judge import judge
from benchmarks.inference_gym.targets import GymTarget, Truth
from benchmarks.posteriors.posterior import double_precision
from nvgd._support.files import output_directory, write_atomically

NUM_GRADIENTS = 256 * 2000
NUM_CHAINS, NUM_WARMUP = 4, 500
# Trees of the warm-up have at most 2⁷ − 1 leapfrog steps, of which 500 take half of a chain's
# gradients; with 2¹⁰, as is usual, the warm-up alone took all of them on four of fifteen targets.
LARGEST_DEPTHS = (7, 10)
LARGEST_DENSE = 100


def nuts(target: GymTarget, truth: Truth, seed: int, directory: Path) -> dict[str, Any]:
    """NUTS's record, made on first use and then read from `directory`.

    It does not depend on the version of this library, so later runs of the benchmark reuse it.
    """
    path = output_directory(directory / "nuts") / f"{target.name}-{seed}.json"
    if not path.is_file():
        text = json.dumps(_record(target, truth, seed), indent=1)
        write_atomically(path, lambda file: file.write_text(text))
    return json.loads(path.read_text())


def _record(target: GymTarget, truth: Truth, seed: int) -> dict[str, Any]:
    """NumPyro's NUTS: four chains from N(0, I), each with a quarter of the gradients.

    It runs in double precision, with a dense mass matrix in up to 100 dimensions. Gradients of
    leapfrog steps are counted; the few of the search for a first step size are not. All draws after
    the warm-up are used.
    """
    with double_precision():
        return _in_double_precision(target, truth, seed)


def _in_double_precision(target: GymTarget, truth: Truth, seed: int) -> dict[str, Any]:
    started = time.process_time()
    init, run = _chain(target, truth, NUM_GRADIENTS // NUM_CHAINS)
    spent, kept, transitions, divergent = 0, 0, 0, 0
    total, total_square = np.zeros(len(truth.mean)), np.zeros(len(truth.mean))
    for key in jax.random.split(jax.random.key(seed), NUM_CHAINS):
        chain = run(init(key))
        spent, kept = spent + int(chain.spent), kept + int(chain.kept)
        transitions += int(chain.transitions)
        divergent += int(chain.divergent)
        total = total + np.asarray(chain.total)
        total_square = total_square + np.asarray(chain.total_square)
    mean = total / kept
    sd = np.sqrt(np.maximum(total_square / kept - mean**2, 0))
    judgement = judge(mean, sd, truth)
    return {
        **dataclasses.asdict(judgement),
        "num_gradients": spent,
        "seconds": round(time.process_time() - started, 1),
        "num_transitions": transitions,
        "num_kept": kept,
        "num_divergent": divergent,
    }


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Chain:
    """A chain on its way: counts, and sums of constrained scalars and their squares."""

    state: Any
    spent: Array
    transitions: Array
    kept: Array
    divergent: Array
    total: Array
    total_square: Array


def _chain(
    target: GymTarget, truth: Truth, budget: int
) -> tuple[Callable[[Array], _Chain], Callable[[_Chain], _Chain]]:
    """The start of a chain from a key, and the compiled chain."""
    from numpyro.infer import NUTS  # pyright: ignore[reportMissingImports]

    sampler = NUTS(
        potential_fn=lambda z: -target.log_density(z),
        dense_mass=target.dim <= LARGEST_DENSE,
        max_tree_depth=LARGEST_DEPTHS,
    )

    def init(key: Array) -> _Chain:
        start_key, chain_key = jax.random.split(key)
        position = jax.random.normal(start_key, (target.dim,))
        state = sampler.init(chain_key, NUM_WARMUP, position, (), {})
        zero, zeros = jnp.zeros((), int), jnp.zeros(len(truth.mean))
        return _Chain(state, zero, zero, zero, zero, zeros, zeros)

    def transition(chain: _Chain) -> _Chain:
        state = sampler.sample(chain.state, (), {})
        is_kept = chain.transitions >= NUM_WARMUP
        value = jnp.where(is_kept, target.constrain(state.z), 0.0)
        return _Chain(
            state,
            chain.spent + state.num_steps,
            chain.transitions + 1,
            chain.kept + is_kept,
            chain.divergent + (state.diverging & is_kept),
            chain.total + value,
            chain.total_square + value**2,
        )

    run = jax.jit(lambda chain: jax.lax.while_loop(lambda c: c.spent < budget, transition, chain))
    return init, run
