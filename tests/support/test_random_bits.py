"""Bits from a hashed counter behave as random ones where the library uses them."""

import jax
import jax.numpy as jnp
import numpy as np

from nvgd._support.random_bits import random_signs, random_split, random_words, rows_of

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
