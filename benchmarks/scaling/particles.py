"""Time and memory of a step with very many particles, each case in a process of its own."""

import json
import subprocess
import sys
import time

from benchmarks.machine import peak_gigabytes

CASES = {
    # A million in two dimensions, a hundred thousand in fifty, and smaller numbers to fit costs.
    "NVGD": [(64_000, 2), (1_000_000, 2), (12_800, 50), (102_400, 50)],
    "NVGD paper": [(64_000, 2), (1_000_000, 2), (12_800, 50), (102_400, 50)],
    "ULA": [(1_000_000, 2), (102_400, 50)],
}
# A full period of the default at first, which searches for a driver in one of ten steps.
STEPS = 10


def measure_here(method: str, num_particles: int, dim: int) -> dict[str, float]:
    """Seconds per step, without compilation, and the peak memory of the process."""
    import jax
    import jax.numpy as jnp

    import nvgd
    from nvgd.running.chunks import Steps, advance

    flow = {"NVGD": nvgd.NVGD, "NVGD paper": nvgd.NVGD.paper, "ULA": nvgd.ULA}[method]()
    flow = flow.for_run(1000)
    target = nvgd.Target(lambda x: -0.5 * jnp.sum(x**2), dim=dim)
    key = jax.random.key(0)
    particles = 2 * jax.random.normal(key, (num_particles, dim))
    state = flow.init(target, particles, key=key)

    def go(state, steps: int):
        chunk = advance(Steps(flow, target, key), state, state, None, steps)
        return jax.block_until_ready(chunk)

    started = time.perf_counter()
    chunk = go(state, 1)
    compiled = time.perf_counter() - started
    started = time.perf_counter()
    # After the first five steps, in each of which the default searches for a driver.
    chunk = go(chunk.state._replace(step=jnp.array(5)), STEPS)
    seconds = (time.perf_counter() - started) / STEPS
    inner = chunk.infos.diagnostics.get("inner_steps")
    return {
        "seconds": seconds,
        "first": compiled,
        "gigabytes": peak_gigabytes(),
        "inner_steps": float(jnp.mean(inner[:STEPS])) if inner is not None else 0.0,
        "healthy": bool(chunk.healthy),
    }


def measure(method: str, num_particles: int, dim: int) -> dict[str, float]:
    """The same in a fresh process, whose peak memory is that of this case alone."""
    command = [sys.executable, "-m", "benchmarks.scaling.particles", method]
    output = subprocess.run(
        [*command, str(num_particles), str(dim)], check=True, capture_output=True, text=True
    ).stdout
    return json.loads(output.splitlines()[-1])


if __name__ == "__main__":
    print(json.dumps(measure_here(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
