"""Support points are draws of the chains, nearer to all draws than independent ones."""

import jax.numpy as jnp
import numpy as np

import nvgd
from nvgd.exact.support_points import support_points


def energy(sample, reference):
    measure = nvgd.metrics.Reference(jnp.asarray(reference, jnp.float32))
    return float(measure.energy_distance(jnp.asarray(sample, jnp.float32)))


def test_support_points_are_closer_to_the_target_than_independent_draws():
    rng = np.random.default_rng(0)
    chains, reference = rng.normal(size=(200, 40, 3)), rng.normal(size=(4000, 3))
    chosen = support_points(chains)
    independent = [energy(chains[:, i], reference) for i in range(10)]
    assert energy(chosen, reference) < 0.4 * np.mean(independent)


def test_every_chain_gives_one_of_its_draws():
    chains = np.random.default_rng(1).normal(size=(30, 12, 2)) * np.array([1e4, 1e-4])
    chosen = support_points(chains)
    for point, chain in zip(chosen, chains, strict=True):
        assert np.any(np.all(point == chain, axis=1))


def test_constant_coordinates_and_single_draws():
    chains = np.random.default_rng(2).normal(size=(20, 5, 2))
    chains[..., 1] = 7.0
    assert np.all(support_points(chains)[:, 1] == 7.0)
    np.testing.assert_array_equal(support_points(chains[:, :1]), chains[:, 0])


def test_draws_of_an_improper_target_do_not_overflow():
    chains = np.random.default_rng(2).normal(size=(20, 6, 2)).astype(np.float32)
    scales = np.array([1e30, 1.0], np.float32)
    expected = support_points(chains) * scales
    np.testing.assert_allclose(support_points(chains * scales), expected, rtol=1e-5)
