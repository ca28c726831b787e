"""Parts 3, 4 and 7: the cost of a step in particles, dimensions and the model."""

import tempfile

import equinox as eqx
import jax

import nvgd
from benchmarks.speed.measure import (
    Measurement,
    fastest,
    memory_of,
    seconds_of_processes,
    slope,
)
from benchmarks.speed.programs import KEY, scanned
from nvgd.experiments.mnist import Mnist


def cost_in_particles() -> list[Measurement]:
    """Part 3: processor time and memory per step as n grows."""
    dim, measurements = 10, []
    sizes = {
        "NVGD": (nvgd.NVGD(), (1000, 10_000, 100_000), 1.1),
        "NVGD.paper, 10 inner steps": (
            nvgd.NVGD.paper(max_inner_steps=10),
            (1000, 10_000, 100_000),
            1.1,
        ),
        "SVGD": (nvgd.SVGD(), (500, 1000, 2000), None),
    }
    target = nvgd.Target(lambda x: -0.5 * x @ x, dim=dim)
    for name, (flow, counts, limit) in sizes.items():
        seconds, memory = [], []
        for count in counts:
            particles = jax.random.normal(KEY, (count, dim))
            run, compiled, _ = scanned(flow, target, particles, 1)
            rounds = 6 if count < 50_000 else 2
            seconds.append(fastest({"run": run}, rounds)["run"])
            memory.append(memory_of(compiled))
            label = f"{name}, n = {count:,}"
            measurements += [
                Measurement(3, f"step, {label}", 1e3 * seconds[-1], "ms"),
                Measurement(3, f"memory, {label}", memory[-1] / 1e6, "MB"),
            ]
        measurements += [
            Measurement(3, f"exponent of time, {name}", slope(counts, seconds), at_most=limit),
            Measurement(3, f"exponent of memory, {name}", slope(counts, memory), at_most=limit),
        ]
    code = (
        "import os, jax, nvgd; from benchmarks.machine import peak_gigabytes;"
        f"k = jax.random.key(0); x = jax.random.normal(k, (20000, {dim}));"
        "d = nvgd.directions.Kernel();"
        "f = jax.jit(lambda x: d.fit(x, -x, None, view=None, key=k).velocities);"
        "jax.block_until_ready(f(x));"
        "open(os.environ['PEAK'], 'w').write(str(peak_gigabytes()))"
    )
    with tempfile.NamedTemporaryFile("r") as file:
        seconds_of_processes({"svgd": code}, 1, PEAK=file.name)
        peak = float(file.read())
    measurements.append(Measurement(3, "whole process, SVGD, n = 20,000", peak, "GB", at_most=2.0))
    return measurements


def cost_in_dimensions() -> list[Measurement]:
    """Part 4: processor time and memory per step as d grows, with probes and in closed form."""
    measurements, dims = [], (10, 100, 1000, 10_000)
    for name, divergence in (("Hutchinson", "hutchinson"), ("closed form", "exact")):
        seconds, memory = [], []
        for dim in dims:
            target = nvgd.Target(lambda x: -0.5 * x @ x, dim=dim)
            flow = nvgd.NVGD.paper(max_inner_steps=10, divergence=divergence)
            run, compiled, _ = scanned(flow, target, jax.random.normal(KEY, (100, dim)), 2)
            jax.block_until_ready(run())
            seconds.append(fastest({"run": run}, 7)["run"] / 2)
            memory.append(memory_of(compiled))
            measurements += [
                Measurement(4, f"step, {name}, d = {dim:,}", 1e3 * seconds[-1], "ms"),
                Measurement(4, f"memory, {name}, d = {dim:,}", memory[-1] / 1e6, "MB"),
            ]
        measurements += [
            Measurement(4, f"exponent of time, {name}", slope(dims, seconds), at_most=1.1),
            Measurement(4, f"exponent of memory, {name}", slope(dims, memory), at_most=1.1),
        ]
    return measurements


def many_networks() -> list[Measurement]:
    """Part 7: scores of 100 small convolutional networks on one batch of 128 images."""
    experiment = Mnist()
    target = experiment.target(tuning=False)
    particles = experiment.initial(KEY)
    assert target.data is not None
    batch = jax.tree.map(lambda rows: rows[:128], target.data.rows)
    scores = eqx.filter_jit(target.log_densities_and_scores)
    jax.block_until_ready(scores(particles, batch))
    seconds = fastest({"scores": lambda: scores(particles, batch)})["scores"]
    return [Measurement(7, "scores of 100 networks on 128 images", seconds, "s", at_most=0.25)]
