"""Time and memory a step as the number of particles grows."""

import time

import jax
import numpy as np

import nvgd
from benchmarks.rivals.methods import METHODS
from benchmarks.rivals.targets import BenchmarkTarget
from benchmarks.speed.measure import memory_of

DIM = 10
COUNTS = (100, 300, 1000, 3000, 10_000)
# All pairs at once would not fit.
MOST_PAIRS = 3000


def measured() -> list[dict[str, float | str]]:
    """Milliseconds and megabytes a step, a method and a number of particles."""
    rows = []
    for name in ("nvgd.NVGD()", "nvgd.NVGD.paper", "nvgd.SVGD", "nvgd.ULA", "BlackJAX SVGD"):
        for count in COUNTS:
            if "SVGD" in name and count > MOST_PAIRS:
                continue
            draws = np.zeros((2, DIM))
            # Forty looks of one step each: a piece is one step.
            target = BenchmarkTarget("", DIM, _normal, draws, draws, count, 40)
            piece = METHODS[name].build(target, 1e-2, jax.random.key(0))
            compiled = piece.advance.lower(piece.start, jax.random.key(0)).compile()  # pyright: ignore
            seconds = []
            for _ in range(5):
                started = time.perf_counter()
                jax.block_until_ready(compiled(piece.start, jax.random.key(0)))
                seconds.append(time.perf_counter() - started)
            row = {"method": name, "particles": count, "milliseconds": 1e3 * min(seconds)}
            rows.append({**row, "megabytes": memory_of(compiled) / 1e6})
    return rows


_density = nvgd.densities.Gaussian(np.zeros(DIM), np.ones(DIM))


def _normal(x: jax.Array) -> jax.Array:
    return _density.log_density(x)
