"""A particle flow as one of BlackJAX's sampling algorithms."""

from typing import Any

import jax
from jaxtyping import PRNGKeyArray, PyTree

from nvgd.data import AbstractHostData
from nvgd.errors import InputError, check_kind, optional_import
from nvgd.flow import FlowInfo, FlowState, ParticleFlow
from nvgd.methods import NVGD
from nvgd.starts import flatten
from nvgd.target import LogDensity, Position, Target, as_target


def to_blackjax(
    target: Target | LogDensity,
    flow: ParticleFlow | None = None,
    *,
    dim: int | None = None,
    example: Position = None,
) -> Any:
    """A `blackjax.base.SamplingAlgorithm` whose chain is the whole ensemble of particles.

        algorithm = nvgd.to_blackjax(log_density, nvgd.SVGD(0.1), dim=2)
        state = algorithm.init(particles, key)
        state, info = algorithm.step(key, state)

    `particles` are an array (n, dim) or a pytree with a leading axis n; `state.particles` is the
    array. `blackjax.util.run_inference_algorithm` accepts the algorithm. A target with minibatches
    draws its rows, with replacement, from the key of the step.
    """
    base = optional_import("blackjax.base", "blackjax", "to_blackjax")
    target = as_target(target, dim, example)
    flow = NVGD() if flow is None else flow
    check_kind("flow", flow, ParticleFlow, "NVGD()")
    if isinstance(target.data, AbstractHostData):
        raise InputError(
            "BlackJAX's loop runs inside JAX and cannot read data from a disk or a stream: pass "
            "arrays, or use nvgd.sample."
        )

    def init(position: PyTree, rng_key: PRNGKeyArray | None = None) -> FlowState:
        if rng_key is None:
            raise InputError("init needs a key, as in init(position, jax.random.key(0)).")
        return flow.init(target, flatten(target, position), key=rng_key)

    def step(rng_key: PRNGKeyArray, state: FlowState) -> tuple[FlowState, FlowInfo]:
        batch = None
        if target.batch_size is not None:
            rng_key, row_key = jax.random.split(rng_key)
            rows = jax.random.randint(row_key, (target.batch_size,), 0, target.num_rows)
            batch = target.batch(rows)
        return flow.step(target, state, batch, key=rng_key)

    return base.SamplingAlgorithm(init, step)
