"""Chains in regions without mass are found; those in narrow, wide or light ones are not."""

import jax.numpy as jnp
import numpy as np
import pytest

from nvgd.exact.lost_chains import is_lost
from nvgd.flow.coordinates.base import AffineFrame

DIM, NUM_CHAINS, LENGTH = 5, 40, 30
IDENTITY = AffineFrame(jnp.zeros(DIM), jnp.eye(DIM), jnp.eye(DIM))


def chains_with_one(centre, sd, log_height):
    """Chains of a standard normal, but the first is in a mode of its own of this height."""
    rng = np.random.default_rng(0)
    positions = rng.normal(size=(NUM_CHAINS, LENGTH, DIM))
    log_densities = -0.5 * np.sum(positions**2, axis=2)
    log_densities[0] += log_height
    positions[0] = centre + sd * positions[0]
    return positions, log_densities, np.zeros_like(positions)


@pytest.mark.parametrize(
    ("centre", "sd", "log_height", "expected"),
    [
        pytest.param(9.0, 1.0, -25.0, True, id="low mode"),
        pytest.param(9.0, 1.0, -8.0, False, id="light mode"),
        pytest.param(9.0, 20.0, -20.0, False, id="low and wide mode"),
        pytest.param(0.0, 0.01, 20.0, False, id="neck"),
        pytest.param(0.0, 0.01, 0.0, False, id="chain that hardly moves"),
    ],
)
def test_only_chains_without_mass_are_lost(centre, sd, log_height, expected):
    found = is_lost(IDENTITY, *chains_with_one(centre, sd, log_height))
    assert found[0] == expected
    assert not found[1:].any()


def test_short_chains_tell_nothing():
    chains = (each[:, :4] for each in chains_with_one(9.0, 1.0, -100.0))
    assert not is_lost(IDENTITY, *chains).any()
