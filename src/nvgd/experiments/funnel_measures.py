"""Distances of particles and of independent draws from a funnel."""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from nvgd.evaluation.curved_densities import Funnel
from nvgd.evaluation.distances import Reference, kolmogorov_smirnov

NUM_REFERENCE_DRAWS = 5000
# Independent exact samples, which show what a perfect method would score.
NUM_EXACT_SAMPLES = 20
# The energy distance comes first: it sees the neck of the funnel, which MMD² with h = 1 does not.
MEASURES = {"energy": "energy distance", "mmd": "MMD²", "ks": "KS distance of x₁"}
# In figures: the headline, and the paper's measure beside it.
IN_FIGURES = {name: MEASURES[name] for name in ("energy", "mmd")}
# Decimal places in tables.
DIGITS = {"energy": 3, "mmd": 4, "ks": 3}


class FunnelMeasures(eqx.Module):
    """MMD² with h = 1, energy distance, and KS distance of x₁ from N(0, 3²).

    MMD with h = 1 does not see the neck of the funnel; the other two do.
    """

    reference: Reference

    def __init__(self, dim: int):
        draws = Funnel(dim).sample(jax.random.key(2**31 + dim), NUM_REFERENCE_DRAWS)
        self.reference = Reference(draws)

    def __call__(self, particles: Float[Array, "n d"]) -> dict[str, Array]:
        """All three measures of the particles."""
        return {
            "mmd": self.reference.mmd_squared(particles),
            "energy": self.reference.energy_distance(particles),
            "ks": kolmogorov_smirnov(particles[:, 0], lambda x: norm.cdf(x, scale=3.0)),
        }


@functools.lru_cache(maxsize=1)
def funnel_measures(dim: int) -> FunnelMeasures:
    """The measures in this dimension, cached: all tasks share the reference draws."""
    return FunnelMeasures(dim)


def measure_exact_samples(
    dim: int, num_particles: int, measures: FunnelMeasures, measure: Callable[..., None]
) -> None:
    """Measure independent exact samples of `num_particles` draws."""
    for i in range(NUM_EXACT_SAMPLES):
        draws = Funnel(dim).sample(jax.random.key(2**30 + i), num_particles)
        measure(step=i, **measures(draws))
