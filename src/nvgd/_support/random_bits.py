"""Fast random bits from a hashed counter, for random splits and probe signs.

Each draw with `jax.random` adds half a second of compilation to a program, and more arithmetic per
number than the sign of a probe needs. Draws that determine the distribution of a result (Langevin
noise, starts, rebirths) use `jax.random`.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

from nvgd._support.particle_groups import join_groups, split_groups

# Streams of one key: one for the split of the particles, the following ones for probes.
SPLIT_STREAM = 0
FIRST_PROBE_STREAM = 1


def random_words(
    key: PRNGKeyArray, num_words: int, stream: Int[Array, ""] | int = 0
) -> UInt32[Array, " num_words"]:
    """`num_words` random 32-bit words; different streams of one key are independent."""
    words = jnp.arange(num_words, dtype=jnp.uint32)
    salts = jax.random.key_data(key).ravel()
    for salt in (jnp.asarray(stream).astype(jnp.uint32), *salts):
        words = _mixed(words) ^ salt
    return _mixed(words)


def random_split(
    key: PRNGKeyArray, size: int, num_first: int
) -> tuple[Int[Array, "k m"], Int[Array, "k p"]]:
    """Split the rows of each group at random into two parts, and return their indices.

    Arguments:
        size: number of rows in all groups together.
        num_first: number of rows in the first parts of all groups together, approximately.
    """
    words = split_groups(random_words(key, size, SPLIT_STREAM))
    order = jnp.argsort(words, axis=1)
    # At least one row in each part.
    cut = min(max(round(num_first / len(words)), 1), words.shape[1] - 1)
    return order[:, :cut], order[:, cut:]


def rows_of(values: Float[Array, "n ..."], rows: Int[Array, "k m"]) -> Float[Array, "km ..."]:
    """The rows of `values` at the given indices within each group, joined."""
    if len(rows) == 1:
        return values[rows[0]]
    return join_groups(jax.vmap(lambda group, chosen: group[chosen])(split_groups(values), rows))


def random_signs(
    key: PRNGKeyArray, shape: tuple[int, ...], dtype: jnp.dtype, stream: Int[Array, ""] | int = 0
) -> Float[Array, "..."]:
    """±1 with equal probability, from one random bit each."""
    size = math.prod(shape)
    words = random_words(key, -(-size // 32), stream)
    bits = (words[:, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    return (1 - 2 * bits.astype(dtype)).reshape(-1)[:size].reshape(shape)


def _mixed(words: UInt32[Array, " n"]) -> UInt32[Array, " n"]:
    """The finaliser of MurmurHash3: every input bit affects every output bit.

    The finaliser maps zero to zero, so a constant is added first.
    """
    words = words + jnp.uint32(0x9E3779B9)
    words = (words ^ (words >> 16)) * jnp.uint32(0x85EBCA6B)
    words = (words ^ (words >> 13)) * jnp.uint32(0xC2B2AE35)
    return words ^ (words >> 16)
