"""Data that JAX does not hold: memory maps on disk, and streams of batches; the host reads them."""

import mmap
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from nvgd._support.errors import InputError, check_count
from nvgd.targets.data import AbstractBatches, AbstractData, DeviceData, count_rows
from nvgd.targets.epochs import EpochShuffle
from nvgd.targets.row_checks import BatchOrder


class MappedData(AbstractData):
    """Memory-mapped arrays, whose rows are read when a step needs them."""

    def __init__(self, arrays: PyTree):
        self.arrays, self._num_rows = arrays, count_rows(arrays)

    @property
    def num_rows(self):
        """The common length of the arrays' leading axes."""
        return self._num_rows

    @property
    def example(self):
        """The first row."""
        return jax.tree.map(lambda leaf: np.asarray(leaf[:1]), self.arrays)

    def batches(self, batch_size, seed):
        """Shuffled rows, read without a copy of all data."""
        return _MappedBatches(self.arrays, EpochShuffle(self.num_rows, batch_size, seed))

    def blocks(self, num_rows):
        """Consecutive slices, read from disk."""
        jax.tree.map(lambda leaf: _advise(leaf, "SEQUENTIAL"), self.arrays)
        for first in range(0, self.num_rows, num_rows):
            part = slice(first, first + num_rows)
            # A copy, because the mapped pages are released below.
            yield jax.tree.map(lambda leaf, part=part: np.array(leaf[part]), self.arrays)
            jax.tree.map(lambda leaf: _advise(leaf, "DONTNEED"), self.arrays)


class _MappedBatches(AbstractBatches):
    def __init__(self, arrays: PyTree, shuffle: EpochShuffle):
        self._arrays, self._shuffle = arrays, shuffle
        self._reader = ThreadPoolExecutor(1)
        self._ahead: tuple[int, int, Future[PyTree]] | None = None

    def take(self, first_step, num_steps, part=slice(None)):
        if self._ahead is None:
            return self._read(first_step, num_steps, part)
        first, number, future = self._ahead
        self._ahead, batches = None, future.result()
        if first != first_step:
            return self._read(first_step, num_steps, part)
        batches = jax.tree.map(lambda leaf: leaf[:num_steps], batches)
        if number >= num_steps:
            return batches
        rest = self._read(first + number, num_steps - number, part)
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), batches, rest)

    def read_ahead(self, first_step, num_steps, part):
        future = self._reader.submit(self._read, first_step, num_steps, part)
        self._ahead = (first_step, num_steps, future)

    def _read(self, first_step: int, num_steps: int, part: slice) -> PyTree:
        rows = self._shuffle.rows(first_step, num_steps)[:, part]

        def read(leaf: np.ndarray) -> np.ndarray:
            _advise(leaf, "RANDOM")
            values = np.asarray(leaf[rows])
            _advise(leaf, "DONTNEED")
            return values

        return jax.tree.map(read, self._arrays)


def _advise(leaf: np.ndarray, advice: str) -> None:
    """Call `madvise` on a memory map, where the operating system supports it.

    `RANDOM` turns read-ahead off, `SEQUENTIAL` turns it up, and `DONTNEED` releases pages, which
    otherwise stay resident once they have been read.
    """
    mapped, code = getattr(leaf, "_mmap", None), getattr(mmap, f"MADV_{advice}", None)
    # Releasing the pages of a copy-on-write map would discard the user's changes.
    if mapped is not None and code is not None and getattr(leaf, "mode", None) != "c":
        mapped.madvise(code)


class BatchStream(AbstractData):
    """Batches from any iterable, such as a data loader, a generator or a list.

        Target(log_prior, dim=3, log_likelihood=log_likelihood, data=BatchStream(loader, 60_000))

    Batches are arrays, or pytrees of arrays, with a leading axis of rows. The iterable is
    responsible for shuffling; a warning says if it does not. At its end it is iterated again.
    Batches whose shapes differ from those of the first, such as an incomplete last batch, are
    skipped.

    Arguments:
        batches: an iterable of batches. A list or data loader can serve several runs and can be
            resumed. An iterator or generator serves one run and allows no pass over all data,
            which the error of means, `diagnose()` and `num_steps="auto"` need.
        num_rows: N, the total number of rows, for the factor N/B.

    Examples:
        >>> batches = [jnp.linspace(0.0, 2.0, 50) for _ in range(20)]
        >>> target = nvgd.Target(
        ...     lambda theta: -0.5 * jnp.sum(theta**2),
        ...     dim=1,
        ...     log_likelihood=lambda theta, value: -0.5 * (value - theta[0]) ** 2,
        ...     data=nvgd.BatchStream(batches, num_rows=1000),
        ... )
        >>> target.num_rows
        1000
    """

    def __init__(self, batches: Iterable[PyTree], num_rows: int):
        check_count("num_rows", num_rows)
        if not hasattr(batches, "__iter__"):
            raise InputError(f"batches must be an iterable of batches, got {batches!r}.")
        self._num_rows = int(num_rows)
        self._source = batches
        self._is_once = iter(batches) is batches
        self._iterator = iter(batches)
        try:
            self._first = next(self._iterator)
        except StopIteration:
            raise InputError("batches must hold at least one batch, got an empty one.") from None
        self._is_used = False

    @property
    def num_rows(self):
        """N, as given."""
        return self._num_rows

    @property
    def example(self):
        """The first batch."""
        return self._first

    @property
    def own_batch_size(self):
        """The size of the first batch."""
        return count_rows(jax.tree.map(np.asarray, self._first))

    @property
    def can_be_read_again(self):
        """False for an iterator or generator."""
        return not self._is_once

    def batches(self, batch_size, seed):
        """The batches of the iterable from its start, in its own order."""
        del batch_size, seed
        return _StreamedBatches(self)

    def blocks(self, num_rows):
        """One pass over the batches of the iterable, at their own size."""
        del num_rows
        order = BatchOrder()
        for batch in self._start():
            if _shapes(batch) == _shapes(self._first):
                order.add(batch)
                yield batch
        order.check()

    def _start(self) -> Iterator[PyTree]:
        if not self._is_once:
            return iter(self._source)
        if self._is_used:
            raise InputError(
                "the iterator of this BatchStream is used up: give it an iterable that can be "
                "started again, such as a list or a data loader."
            )
        self._is_used = True
        # The first batch was read to see its shapes.
        return (batch for part in ((self._first,), self._iterator) for batch in part)


class _StreamedBatches(AbstractBatches):
    def __init__(self, stream: BatchStream):
        self._stream, self._iterator = stream, stream.blocks(0)
        self._first_step, self._buffer = 0, []

    def take(self, first_step, num_steps, part=slice(None)):
        while self._first_step + len(self._buffer) < first_step + num_steps:
            self._buffer.append(self._next())
            if self._first_step < first_step:
                self._first_step += 1
                self._buffer.pop(0)
        surplus = first_step - self._first_step
        self._first_step, self._buffer = first_step, self._buffer[surplus:]
        return jax.tree.map(
            lambda *leaves: np.stack([leaf[part] for leaf in leaves]), *self._buffer[:num_steps]
        )

    def _next(self) -> PyTree:
        try:
            return next(self._iterator)
        except StopIteration:
            self._iterator = self._stream.blocks(0)
            return next(self._iterator)


def _shapes(batch: PyTree) -> list[tuple[Any, ...]]:
    """Shape and dtype of every array."""
    return [(np.shape(leaf), jnp.result_type(leaf)) for leaf in jax.tree.leaves(batch)]


def as_data(data: PyTree) -> AbstractData:
    """Wrap arrays as `DeviceData`, memory maps as `MappedData`; return data sources unchanged."""
    if isinstance(data, AbstractData):
        return data
    if any(isinstance(leaf, np.memmap) for leaf in jax.tree.leaves(data)):
        return MappedData(data)
    arrays = jax.tree.map(_held, data)
    count_rows(arrays)
    return DeviceData(arrays)


def _held(leaf: Any) -> Array:
    """A JAX array of the values; refuse integers that overflow JAX's integer type."""
    array = jnp.asarray(leaf)
    if jnp.issubdtype(array.dtype, jnp.integer) and np.asarray(leaf).dtype != array.dtype:
        values, limits = np.asarray(leaf), jnp.iinfo(array.dtype)
        if values.size and (values.min() < limits.min or values.max() > limits.max):
            raise InputError(
                f"data must hold whole numbers that {array.dtype} can hold, got {values.min()} to "
                f"{values.max()}: give them as floating-point numbers, or subtract an offset."
            )
    return array
