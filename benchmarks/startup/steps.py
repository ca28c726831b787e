"""The cost of a step of `nvgd.NVGD()`, and of a batch of gradients, in a running process."""

import time
from collections.abc import Callable
from typing import Any

import jax

import nvgd
from benchmarks.startup.methods import NUM_PARTICLES, Problem

# A run of so few steps has no corrections; a longer one has as many flow steps, then corrections.
FLOW_STEPS, CORRECTION_STEPS = 400, 1000
ROUNDS = 3
# The normals of the budgets, and one posterior whose gradient costs more than the step around it.
TARGETS = ("standard_normal_2", "standard_normal_50", "hidden_markov")


def measured(problem: Problem) -> dict[str, Any]:
    """Processor milliseconds per flow step, per correction, and per batch of gradients."""
    flow = _fastest(lambda seed: _sampled(problem, FLOW_STEPS, seed))
    both = _fastest(lambda seed: _sampled(problem, FLOW_STEPS + CORRECTION_STEPS, seed))
    gradients = _fastest(_gradients(problem))
    costs = {
        "flow": flow / FLOW_STEPS,
        "corrections": (both - flow) / CORRECTION_STEPS,
        "gradient": gradients / CORRECTION_STEPS,
    }
    return {
        "target": problem.name,
        "dim": problem.dim,
        **{f"{part}_cpu_ms": round(1e3 * seconds, 4) for part, seconds in costs.items()},
    }


def _sampled(problem: Problem, num_steps: int, seed: int) -> Any:
    assert problem.log_density is not None
    posterior = nvgd.sample(
        problem.log_density,
        dim=problem.dim,
        num_particles=NUM_PARTICLES,
        num_steps=num_steps,
        seed=seed,
        progress=False,
    )
    return posterior.particles


def _gradients(problem: Problem) -> Callable[[int], Any]:
    """As many batches of gradients as there are corrections, each at other positions."""
    assert problem.log_density is not None
    gradient = jax.vmap(jax.grad(problem.log_density))

    @jax.jit
    def run(particles):
        def step(particles, _):
            return particles + 1e-4 * gradient(particles), None

        return jax.lax.scan(step, particles, length=CORRECTION_STEPS)[0]

    return lambda seed: run(jax.random.normal(jax.random.key(seed), (NUM_PARTICLES, problem.dim)))


def _fastest(run: Callable[[int], Any]) -> float:
    """The fewest processor seconds of a call, without the first, which compiles."""
    jax.block_until_ready(run(0))
    spent = []
    for seed in range(1, ROUNDS + 1):
        started = time.process_time()
        jax.block_until_ready(run(seed))
        spent.append(time.process_time() - started)
    return min(spent)
