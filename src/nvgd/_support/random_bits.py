"""Random numbers whose programs compile in a tenth of the time of those of `jax.random`.

`random_normals` and `random_uniforms` use the same generator as `jax.random`, Threefry with twenty
rounds, written as a loop: unrolled, it adds most of a second of compilation for every draw in a
program. `random_words` and `random_signs` hash a counter, which is faster still and good enough for
random splits and the signs of probes.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

from nvgd._support.compilation import quickly_compiled
from nvgd._support.particle_groups import join_groups, split_groups

# Streams of one key: one for the split of the particles, the following ones for probes.
SPLIT_STREAM = 0
FIRST_PROBE_STREAM = 1
# Rotations of the rounds of Threefry-2x32.
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)


def random_words(
    key: PRNGKeyArray, num_words: int, stream: Int[Array, ""] | int = 0
) -> UInt32[Array, " num_words"]:
    """`num_words` random 32-bit words; different streams of one key are independent."""
    words = jnp.arange(num_words, dtype=jnp.uint32)
    salts = jax.random.key_data(key).ravel()
    for salt in (jnp.asarray(stream).astype(jnp.uint32), *salts):
        words = _mixed(words) ^ salt
    return _mixed(words)


def random_numbers(
    key: PRNGKeyArray,
    num_rows: int,
    num_normals: int,
    num_uniforms: int,
    dtype: jnp.dtype,
    stream: Int[Array, ""] | int = 0,
) -> tuple[Float[Array, "n a"], Float[Array, "n b"]]:
    """Standard normal numbers by the method of Box and Muller, and numbers uniform on (0, 1).

    Both come from one pass of the generator; streams of a key are independent. Every row is made
    from counters of its own, so that rows can be split over devices.
    """
    num_pairs = (num_normals + 1) // 2
    words = _threefry(key, (num_rows, num_pairs + (num_uniforms + 1) // 2), stream)
    first, second = (_fractions(side, dtype) for side in words)
    lengths = jnp.sqrt(-2 * jnp.log(first[:, :num_pairs]))
    angles = 2 * math.pi * second[:, :num_pairs]
    normals = jnp.concatenate([lengths * jnp.cos(angles), lengths * jnp.sin(angles)], axis=1)
    uniforms = jnp.concatenate([first[:, num_pairs:], second[:, num_pairs:]], axis=1)
    return normals[:, :num_normals], uniforms[:, :num_uniforms]


@quickly_compiled
def random_normals(
    key: PRNGKeyArray, shape: tuple[int, ...], dtype: jnp.dtype, stream: Int[Array, ""] | int = 0
) -> Float[Array, "..."]:
    """Standard normal numbers; streams of a key are independent."""
    rows, columns = _rows_and_columns(shape)
    return random_numbers(key, rows, columns, 0, dtype, stream)[0].reshape(shape)


def random_uniforms(
    key: PRNGKeyArray, shape: tuple[int, ...], dtype: jnp.dtype, stream: Int[Array, ""] | int = 0
) -> Float[Array, "..."]:
    """Numbers uniform on (0, 1), without the ends; streams of a key are independent."""
    rows, columns = _rows_and_columns(shape)
    return random_numbers(key, rows, 0, columns, dtype, stream)[1].reshape(shape)


def random_indices(
    key: PRNGKeyArray, shape: tuple[int, ...], number: int, stream: Int[Array, ""] | int = 0
) -> Int[Array, "..."]:
    """Integers uniform on 0, …, number − 1, for numbers far below 2²⁴."""
    uniforms = random_uniforms(key, shape, jnp.dtype(jnp.float32), stream)
    return jnp.minimum((number * uniforms).astype(int), number - 1)


def _rows_and_columns(shape: tuple[int, ...]) -> tuple[int, int]:
    return (shape[0], math.prod(shape[1:])) if shape else (1, 1)


def _fractions(words: UInt32[Array, "n k"], dtype: jnp.dtype) -> Float[Array, "n k"]:
    """Words as numbers in (0, 1), from as many leading bits as the numbers hold exactly."""
    bits = min(jnp.finfo(dtype).nmant, 32)
    return ((words >> (32 - bits)).astype(dtype) + 0.5) * 2.0**-bits


def _threefry(
    key: PRNGKeyArray, shape: tuple[int, int], stream: Int[Array, ""] | int
) -> tuple[UInt32[Array, "n k"], UInt32[Array, "n k"]]:
    """Threefry-2x32 with twenty rounds of the counters (i, stream), after Salmon et al. (2011).

    Four rounds in a loop: all twenty at once take several times as long to compile.
    """
    first, second = jax.random.key_data(key).ravel()
    schedule = jnp.stack([first, second, first ^ second ^ jnp.uint32(0x1BD11BDA)])
    # After every fourth round, two of the three key words are added, and a count to the second.
    turns = jnp.arange(1, 6)
    added = jnp.stack([schedule[turns % 3], schedule[(turns + 1) % 3] + turns.astype(jnp.uint32)])
    rotations = jnp.array((ROTATIONS * 3)[:20], jnp.uint32).reshape(5, 4)

    def four_rounds(i: Array | int, words: tuple[Array, Array]) -> tuple[Array, Array]:
        left, right = words
        for rotation in rotations[i]:
            left = left + right
            right = ((right << rotation) | (right >> (32 - rotation))) ^ left
        return left + added[0, i], right + added[1, i]

    row, column = (jax.lax.broadcasted_iota(jnp.uint32, shape, axis) for axis in (0, 1))
    counters = row * jnp.uint32(shape[1]) + column + schedule[0]
    streams = jnp.full(shape, jnp.asarray(stream).astype(jnp.uint32) + schedule[1])
    return jax.lax.fori_loop(0, 5, four_rounds, (counters, streams))


def random_split(
    key: PRNGKeyArray, size: int, num_first: int, most: int | None = None
) -> tuple[Int[Array, "k m"], Int[Array, "k p"]]:
    """Split the rows of each group at random into two parts, and return their indices.

    Arguments:
        size: number of rows in all groups together.
        num_first: number of rows in the first parts of all groups together, approximately.
        most: largest number of rows in both parts of all groups together; both shrink in
            proportion if there are more rows.
    """
    words = split_groups(random_words(key, size, SPLIT_STREAM))
    order = jnp.argsort(words, axis=1)
    # At least one row in each part.
    share = 1.0 if most is None else min(1.0, most / size)
    cut = min(max(round(share * num_first / len(words)), 1), words.shape[1] - 1)
    end = max(round(share * words.shape[1]), cut + 1)
    return order[:, :cut], order[:, cut:end]


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
