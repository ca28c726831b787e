"""A particle flow as a sampling algorithm of BlackJAX."""

from typing import Any

import jax
from jaxtyping import PRNGKeyArray, PyTree

from nvgd._support.errors import InputError, check_count, check_kind, optional_import
from nvgd.flow.methods import NVGD
from nvgd.flow.particle_flow import FlowState, ParticleFlow
from nvgd.flow.stage import StepInfo
from nvgd.targets.coercion import as_target
from nvgd.targets.positions import Position
from nvgd.targets.target import LogDensity, Target


def to_blackjax(
    target: Target | LogDensity,
    flow: ParticleFlow | None = None,
    *,
    dim: int | None = None,
    example: Position = None,
    num_steps: int | None = None,
) -> Any:
    """A `blackjax.base.SamplingAlgorithm` whose state is the whole ensemble of particles.

        algorithm = nvgd.to_blackjax(log_density, nvgd.SVGD(0.1), dim=2)
        state = algorithm.init(particles, key)
        state, info = algorithm.step(key, state)

    `particles` is an array (n, dim) or a pytree with a leading axis n; `state.particles` is the
    array. `blackjax.util.run_inference_algorithm` accepts the algorithm. With minibatches, each
    step draws its rows from its key, with replacement. The steps are those of the flow alone: the
    corrections with which `nvgd.sample` ends a run of `NVGD()` are not part of it.

    Arguments:
        target: a `Target`, or a log density with `dim` or `example`.
        flow: the method, `NVGD()` if omitted.
        num_steps: how many steps will be taken; required by flows whose step sizes depend on the
            length of the run, such as `NVGD()`.

    Examples:
        >>> algorithm = nvgd.to_blackjax(lambda x: -0.5 * jnp.sum(x**2), nvgd.SVGD(0.3), dim=2)
        >>> key = jax.random.key(0)
        >>> state = algorithm.init(jax.random.normal(key, (50, 2)), key)
        >>> state, info = algorithm.step(key, state)
        >>> state.particles.shape
        (50, 2)
    """
    base = optional_import("blackjax.base", "blackjax", "to_blackjax")
    target = as_target(target, dim, example)
    flow = NVGD() if flow is None else flow
    check_kind("flow", flow, ParticleFlow, "NVGD()")
    if num_steps is not None:
        check_count("num_steps", num_steps)
        flow = flow.for_run(int(num_steps))
    elif flow.depends_on_length:
        raise InputError(
            f"to_blackjax needs num_steps= for {type(flow).__name__}, whose step sizes depend on "
            "the length of the run: pass the number of steps that BlackJAX will take."
        )
    if target.data is not None and target.data.rows is None:
        raise InputError(
            "BlackJAX's loop runs inside JAX and cannot read data from a disk or a stream: pass "
            "arrays, or use nvgd.sample."
        )

    def init(position: PyTree, rng_key: PRNGKeyArray | None = None) -> FlowState:
        if rng_key is None:
            raise InputError("init needs a key, as in init(position, jax.random.key(0)).")
        return flow.init(target, target.flatten(position), key=rng_key)

    def step(rng_key: PRNGKeyArray, state: FlowState) -> tuple[FlowState, StepInfo]:
        batch = None
        if target.batch_size is not None:
            rng_key, row_key = jax.random.split(rng_key)
            rows = jax.random.randint(row_key, (target.batch_size,), 0, target.num_rows)
            batch = target.batch(rows)
        return flow.step(target, state, batch, key=rng_key)

    return base.SamplingAlgorithm(init, step)
