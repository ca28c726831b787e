"""Time and memory per step as the number of particles grows."""

import jax
import numpy as np

import nvgd
from benchmarks.rivals.methods import METHODS, NUM_LOOKS, default
from benchmarks.rivals.running import DEFAULT
from benchmarks.rivals.targets import BenchmarkTarget
from benchmarks.speed.measure import fastest, memory_of

DIM = 10
KEY = jax.random.key(0)
COUNTS = (100, 1000, 10_000)
# For methods with a cost quadratic in the number of particles.
FEWER_COUNTS = (100, 300, 1000)


def measured() -> list[dict[str, float | str]]:
    """Milliseconds and megabytes per step, for every method and number of particles."""
    rows = []
    builders = {DEFAULT: default, **{name: method.build for name, method in METHODS.items()}}
    for name in (DEFAULT, "nvgd.NVGD.paper", "nvgd.SVGD", "nvgd.ULA", "BlackJAX SVGD"):
        for count in FEWER_COUNTS if "SVGD" in name else COUNTS:
            draws = np.zeros((2, DIM))
            # As many steps as there are measurements: a piece is one step.
            target = BenchmarkTarget("", DIM, _normal, draws, draws, count, NUM_LOOKS)
            piece = builders[name](target, 1e-2, KEY)
            compiled = piece.advance.lower(piece.start, KEY).compile()  # pyright: ignore
            step = fastest({"step": lambda c=compiled, p=piece: c(p.start, KEY)}, 5)["step"]
            row = {"method": name, "particles": count, "milliseconds": 1e3 * step}
            rows.append({**row, "megabytes": memory_of(compiled) / 1e6})
    return rows


_density = nvgd.densities.Gaussian(np.zeros(DIM), np.ones(DIM))


def _normal(x: jax.Array) -> jax.Array:
    return _density.log_density(x)
