"""Runs on eight virtual devices and on one, compared; prints what it finds as JSON.

A program of its own: the number of devices must be known before JAX starts.
"""

import json
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.scaling.collectives import step_program, traffic

import nvgd
from nvgd import coordinates
from nvgd._support.devices import Placement
from nvgd.densities import Funnel

FUNNEL = nvgd.Target(Funnel(2).log_density, dim=2)
ROWS = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
# Of which the positions are 64 kilobytes.
NUM_PARTICLES = 8192
PAPER = nvgd.NVGD.paper(0.01, max_inner_steps=5)


def with_rows(data, batch_size):
    return nvgd.Target(
        lambda x: -0.5 * jnp.sum(x**2),
        dim=3,
        log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2),
        data=data,
        batch_size=batch_size,
    )


def difference(target, flow, devices, **options):
    """Largest distance between the particles of both runs, and whether all bits agree."""
    options = {"num_particles": 64, "num_steps": 10, "progress": False, **options}
    one, several = (nvgd.sample(target, flow, devices=d, **options) for d in (None, devices))
    assert several.particles.devices() == {jax.devices()[0]}
    distance = float(jnp.max(jnp.abs(one.particles - several.particles)))
    return {"distance": distance, "equal": bool(jnp.array_equal(one.particles, several.particles))}


def refusal(**options):
    try:
        nvgd.sample(FUNNEL, nvgd.ULA(), num_steps=1, progress=False, **options)
    except nvgd.InputError as error:
        return str(error)
    return None


def resumed(directory):
    """Half on eight devices, half on two, against a run on one that nothing disturbed."""
    options = {"num_particles": 64, "progress": False}
    whole = nvgd.sample(FUNNEL, PAPER, num_steps=12, **options)
    kept = {**options, "checkpoint": directory, "checkpoint_every": 6}
    nvgd.sample(FUNNEL, PAPER, num_steps=6, devices=8, **kept)
    rest = nvgd.sample(FUNNEL, PAPER, num_steps=12, devices=2, **kept)
    return float(jnp.max(jnp.abs(whole.particles - rest.particles)))


def main(directory):
    mapped = np.memmap(directory / "rows", np.float32, "w+", shape=ROWS.shape)
    mapped[:] = ROWS
    grid = nvgd.device_mesh(4, data=2)
    smooth = nvgd.NVGD(coordinates=coordinates.Diagonal(), width=8)
    found = {
        "ula": difference(FUNNEL, nvgd.ULA(), 8),
        "svgd": difference(FUNNEL, nvgd.SVGD(), 8),
        "paper": difference(FUNNEL, PAPER, jax.devices()),
        "diagonal": difference(FUNNEL, smooth, 8, num_particles=2048, num_steps=3),
        "rows": difference(with_rows(ROWS, None), nvgd.ULA(1e-3), grid),
        "batches": difference(with_rows(ROWS, 16), nvgd.SGLD(1e-3), grid),
        "mapped": difference(with_rows(mapped, 16), nvgd.SGLD(1e-3), grid),
        "thinned": difference(FUNNEL, nvgd.ULA(), 8, thin=5),
        "resumed": resumed(directory / "checkpoints"),
        "refused": [
            refusal(devices=8, num_particles=60),
            refusal(devices=99),
            refusal(devices="all"),
            refusal(devices=jax.sharding.Mesh(np.array(jax.devices()), ("x",))),
        ],
    }
    placement = Placement.of(8)
    for name, flow in {
        "paper": PAPER,
        "diagonal": smooth.for_run(100),
        "svgd": nvgd.SVGD(),
    }.items():
        program = step_program(flow, FUNNEL, NUM_PARTICLES, placement)
        found[f"{name} traffic"] = traffic(program, inner_steps=5)
    print(json.dumps(found))


if __name__ == "__main__":
    # As in the suite: a warning is a fault.
    warnings.simplefilter("error")
    main(Path(sys.argv[1]))
