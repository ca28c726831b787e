"""Chains that have spent a round in a region whose mass is too small for a chain.

A flow can leave a few particles in modes that are tens of nats lower than the others. Their chains
stay there, and so small a share of the chains hardly changes any mean, but all widths.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from nvgd._support.compilation import quickly_compiled
from nvgd.flow.coordinates.base import AbstractFrame

# Fewest states per chain from which its spread can be estimated.
FEWEST_STATES = 8
# A lost region should hold fewer than exp(−LEAST_GAP) of the n chains. In many dimensions the log
# density of a good chain varies by more: it has standard deviation √(d/2) for a normal target.
LEAST_GAP = 10.0


def is_lost(
    frame: AbstractFrame,
    positions: Float[np.ndarray, "n k d"],
    log_densities: Float[np.ndarray, "n k"],
    scores: Float[np.ndarray, "n k d"],
) -> Bool[np.ndarray, " n"]:
    """Chains whose region has less than exp(−LEAST_GAP)/n times the mass of a typical one.

    The mass of a region is its density times its volume. The volume that a chain has visited is at
    most the product of its standard deviations, and counts only in a chain's favour: one that
    hardly moves may be in a narrow part of the target, such as the neck of a funnel.

    Arguments:
        frame: coordinates in which volumes are compared.
        positions, log_densities, scores: states of n chains at k times.
    """
    num_chains, length, dim = positions.shape
    if length < FEWEST_STATES:
        return np.zeros(num_chains, bool)
    rows = (jnp.asarray(each.reshape(-1, dim)) for each in (positions, scores))
    expressed, log_volumes = jax.device_get(_expressed(frame, *rows))
    means = np.mean(log_densities + log_volumes.reshape(num_chains, length), axis=1)
    spreads = np.asarray(expressed, np.float64).reshape(positions.shape).std(axis=1)
    volumes = np.sum(np.log(spreads + 1e-12), axis=1)
    gap, larger = np.median(means) - means, np.maximum(volumes - np.median(volumes), 0.0)
    return gap > larger + max(LEAST_GAP, (2 * dim) ** 0.5) + np.log(num_chains)


@quickly_compiled
def _expressed(
    frame: AbstractFrame, particles: Float[Array, "m d"], scores: Float[Array, "m d"]
) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
    expressed, _ = frame.express(particles, scores)
    return expressed, frame.log_volumes(expressed)
