"""Bits from a hashed counter behave as random ones where the library uses them."""

import jax
import jax.numpy as jnp
import numpy as np

from nvgd.hashing import random_order, random_signs, random_words

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
    orders = np.asarray(jax.vmap(lambda key: random_order(key, 6))(keys))
    assert np.array_equal(np.sort(orders, axis=1), np.broadcast_to(np.arange(6), orders.shape))
    counts = np.array([[np.sum(orders[:, place] == i) for i in range(6)] for place in range(6)])
    # Each is binomial with mean 500 and standard deviation 20.4.
    assert np.max(np.abs(counts - 500)) < 4.5 * 20.4


def test_shapes_dtypes_and_traced_streams():
    signs = jax.jit(lambda stream: random_signs(KEY, (5, 3, 7), HALF, stream))(2)
    assert signs.shape == (5, 3, 7)
    assert signs.dtype == jnp.float16
    assert jnp.array_equal(signs, random_signs(KEY, (5, 3, 7), HALF, 2))
