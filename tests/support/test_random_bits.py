"""The library's random numbers are Threefry's, and its random bits behave as random ones."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32
from scipy.stats import kstest

from nvgd._support import random_bits
from nvgd._support.random_bits import (
    random_indices,
    random_normals,
    random_numbers,
    random_signs,
    random_split,
    random_words,
    rows_of,
)

KEY = jax.random.key(3)
SINGLE, HALF = jnp.dtype(jnp.float32), jnp.dtype(jnp.float16)


def test_signs_are_balanced_and_uncorrelated_within_and_across_streams_and_keys():
    size = 1 << 16
    sets = [random_signs(KEY, (size,), SINGLE, stream) for stream in range(4)]
    sets += [random_signs(jax.random.fold_in(KEY, i), (size,), SINGLE) for i in range(4)]
    signs = np.stack(sets)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    # Means and correlations of fair coins have a standard deviation of 1/256.
    assert np.max(np.abs(signs.mean(axis=1))) < 4 / 256
    products = signs @ signs.T / size - np.eye(len(signs))
    assert np.max(np.abs(products)) < 4 / 256
    for lag in (1, 2, 31, 32, 33, 64):
        assert np.max(np.abs(np.mean(signs[:, lag:] * signs[:, :-lag], axis=1))) < 4.5 / 256


def test_every_bit_of_the_words_is_fair():
    words = np.asarray(random_words(KEY, 1 << 14))
    assert len(np.unique(words)) == len(words)
    shares = [np.mean((words >> bit) & 1) for bit in range(32)]
    assert np.max(np.abs(np.array(shares) - 0.5)) < 4 * 0.5 / 128


def test_orders_are_permutations_in_which_every_place_is_equally_likely():
    keys = jax.random.split(KEY, 3000)
    parts = jax.vmap(lambda key: random_split(key, 6, 4))(keys)
    assert [part.shape for part in parts] == [(3000, 1, 4), (3000, 1, 2)]
    orders = np.concatenate(parts, axis=2)[:, 0]
    assert np.array_equal(np.sort(orders, axis=1), np.broadcast_to(np.arange(6), orders.shape))
    counts = np.array([[np.sum(orders[:, place] == i) for i in range(6)] for place in range(6)])
    # Each is binomial with mean 500 and standard deviation 20.4.
    assert np.max(np.abs(counts - 500)) < 4.5 * 20.4


def test_splits_take_the_same_share_of_every_group():
    first, second = random_split(KEY, 1024, 700)
    assert (first.shape, second.shape) == ((4, 175), (4, 81))
    values = jnp.arange(1024.0)
    rows = np.concatenate([rows_of(values, first), rows_of(values, second)])
    assert np.array_equal(np.sort(rows), values)
    assert np.array_equal(
        np.unique(rows_of(values, first) // 256, return_counts=True)[1], [175] * 4
    )
    # At least one on either side, however unequal the shares are.
    assert [part.shape[1] for part in random_split(KEY, 2, 0)] == [1, 1]
    assert [part.shape[1] for part in random_split(KEY, 2, 2)] == [1, 1]


def test_shapes_dtypes_and_traced_streams():
    signs = jax.jit(lambda stream: random_signs(KEY, (5, 3, 7), HALF, stream))(2)
    assert signs.shape == (5, 3, 7)
    assert signs.dtype == jnp.float16
    assert jnp.array_equal(signs, random_signs(KEY, (5, 3, 7), HALF, 2))


def test_words_are_those_of_jax():
    """The loop gives what JAX's own Threefry gives for the same counters."""
    words = random_bits._threefry(KEY, (3, 5), 7)
    counters = jnp.concatenate([jnp.arange(15, dtype=jnp.uint32), jnp.full(15, 7, jnp.uint32)])
    expected = threefry_2x32(jax.random.key_data(KEY), counters)
    assert np.array_equal(np.concatenate([side.ravel() for side in words]), expected)


def test_normal_and_uniform_numbers_are_what_they_are_called():
    normals, uniforms = random_numbers(KEY, 4000, 5, 3, SINGLE)
    assert (normals.shape, uniforms.shape) == ((4000, 5), (4000, 3))
    for column in normals.T:
        assert kstest(column, "norm").pvalue > 1e-3
    for column in uniforms.T:
        assert kstest(column, "uniform").pvalue > 1e-3
    assert 0 < uniforms.min() <= uniforms.max() < 1
    both = np.concatenate([normals, np.sqrt(12) * (uniforms - 0.5)], axis=1)
    # Correlations, also of squares, have a standard deviation of 1/√4000.
    for values in (both, both**2):
        correlations = np.corrcoef(values.T) - np.eye(8)
        assert np.abs(correlations).max() < 4.5 / np.sqrt(4000)
    again = random_normals(KEY, (4000, 5), SINGLE, stream=1)
    assert abs(np.mean(again * normals)) < 4.5 / np.sqrt(20_000)


def test_indices_cover_their_range_evenly():
    counts = np.bincount(np.asarray(random_indices(KEY, (7000,), 7)))
    assert len(counts) == 7
    assert np.abs(counts - 1000).max() < 4.5 * np.sqrt(1000)


def test_splits_of_very_many_rows_take_only_so_many():
    first, second = random_split(KEY, 4096, 2731, most=1024)
    assert first.size + second.size == 1024
    # Two thirds, up to a row per group.
    assert abs(first.size - 683) <= 16
    rows = np.concatenate([first, second], axis=1)
    assert all(len(np.unique(group)) == len(group) for group in rows)
