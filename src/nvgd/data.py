"""Where data rows live, and which of them each step sees.

Arrays are held by JAX, and a step takes its rows by number. Memory maps stay on the disk, and
streams come as they come: the host reads their batches, for as many steps as fit a small buffer.
"""

import mmap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from nvgd.errors import InputError, check_count
from nvgd.orders import EpochShuffle

# Batches read ahead by the host are held twice, here and by JAX: keep them small.
BUFFER_BYTES = 2**24

# Rows in one block of a pass over all data, unless batches are larger.
ROWS_PER_BLOCK = 1024


class AbstractBatches(ABC):
    """What the steps of a run see, one after the other; the same for the same seed."""

    @abstractmethod
    def take(self, first_step: int, num_steps: int, part: slice = slice(None)) -> PyTree:
        """What `Target.batch` makes the batches of these steps from, with a leading axis of steps.

        Steps that lie before an earlier call's first step are not asked for again.

        Arguments:
            part: which rows of each batch this process wants, if data are read by it.
        """

    def read_ahead(self, first_step: int, num_steps: int, part: slice) -> None:
        """Read what is likely to be taken next, while there is time."""
        del first_step, num_steps, part


class NumberedRows(AbstractBatches):
    """Row numbers, for data that JAX holds."""

    def __init__(self, shuffle: EpochShuffle):
        self._shuffle = shuffle

    def take(self, first_step, num_steps, part=slice(None)):
        """The numbers; each device picks its own rows by them."""
        del part
        return self._shuffle.rows(first_step, num_steps)


class AbstractHostData(ABC):
    """Data that JAX does not hold; compared by identity, so that it passes through `jit` unseen."""

    num_rows: int

    @property
    @abstractmethod
    def example(self) -> PyTree:
        """A batch, or rows enough to know shapes and types."""

    @abstractmethod
    def batches(self, batch_size: int, seed: int) -> AbstractBatches:
        """The batches of a run."""

    @abstractmethod
    def blocks(self, num_rows: int) -> Iterator[PyTree]:
        """All rows once, in parts."""


class MappedData(AbstractHostData):
    """Memory-mapped arrays: rows are read when a step needs them."""

    def __init__(self, data: PyTree, num_rows: int):
        self.data, self.num_rows = data, num_rows

    @property
    def example(self):
        """The first row."""
        return jax.tree.map(lambda leaf: np.asarray(leaf[:1]), self.data)

    def batches(self, batch_size, seed):
        """Shuffled rows, without a copy of the whole."""
        return _MappedBatches(self.data, EpochShuffle(self.num_rows, batch_size, seed))

    def blocks(self, num_rows):
        """Slices in order."""
        jax.tree.map(lambda leaf: advise(leaf, "SEQUENTIAL"), self.data)
        for first in range(0, self.num_rows, num_rows):
            part = slice(first, first + num_rows)
            # A copy: the pages behind it are given back.
            yield jax.tree.map(lambda leaf, part=part: np.array(leaf[part]), self.data)
            jax.tree.map(lambda leaf: advise(leaf, "DONTNEED"), self.data)


class _MappedBatches(AbstractBatches):
    def __init__(self, data: PyTree, shuffle: EpochShuffle):
        self._data, self._shuffle = data, shuffle
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
            advise(leaf, "RANDOM")
            values = np.asarray(leaf[rows])
            advise(leaf, "DONTNEED")
            return values

        return jax.tree.map(read, self._data)


def advise(leaf: np.ndarray, advice: str) -> None:
    """Tell the system how a memory map is used, where it listens.

    `RANDOM`: rows here and there, read no more than them. `SEQUENTIAL`: all in order. `DONTNEED`:
    give the pages back; otherwise what was read once stays resident.
    """
    mapped, code = getattr(leaf, "_mmap", None), getattr(mmap, f"MADV_{advice}", None)
    # What was written to a map that keeps changes to itself would be lost with its pages.
    if mapped is not None and code is not None and getattr(leaf, "mode", None) != "c":
        mapped.madvise(code)


class BatchStream(AbstractHostData):
    """Batches from anything that can be iterated over: a data loader, a generator, a list.

        Target(log_prior, dim=3, log_likelihood=log_likelihood, data=BatchStream(loader, 60_000))

    Batches are arrays or pytrees of arrays with a leading axis of rows, in random order: to shuffle
    is its own work. An iterable that ends is started again; batches of another size than the
    first one's, such as an incomplete last one, are left out.

    Arguments:
        batches: an iterable of batches. A list or loader can serve several runs and be resumed; an
            iterator or generator serves one.
        num_rows: N, how many rows there are in all, for the factor N/B.
    """

    def __init__(self, batches: Iterable[PyTree], num_rows: int):
        check_count("num_rows", num_rows)
        if not hasattr(batches, "__iter__"):
            raise InputError(f"batches must be an iterable of batches, got {batches!r}.")
        self.num_rows = int(num_rows)
        self._source = batches
        self._is_once = iter(batches) is batches
        self._iterator = iter(batches)
        try:
            self._first = next(self._iterator)
        except StopIteration:
            raise InputError("batches must hold at least one batch, got an empty one.") from None
        self._is_used = False

    @property
    def example(self):
        """The first batch."""
        return self._first

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

    def batches(self, batch_size, seed):
        """The stream from its start; its order is its own."""
        del batch_size, seed
        return _StreamedBatches(self)

    def blocks(self, num_rows):
        """Batches as they come, once."""
        del num_rows
        yield from (batch for batch in self._start() if shapes(batch) == shapes(self._first))


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


def shapes(batch: PyTree) -> list[tuple[Any, ...]]:
    """Shape and type of every array."""
    return [(np.shape(leaf), jnp.result_type(leaf)) for leaf in jax.tree.leaves(batch)]


def steps_at_a_time(taken: PyTree, capacity: int) -> int:
    """How many steps' batches fit the buffer, from those of one step; at most `capacity`."""
    num_bytes = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(taken))
    return int(np.clip(BUFFER_BYTES // max(num_bytes, 1), 1, capacity))


def num_rows(data: PyTree) -> int:
    """The common length of the arrays' leading axes."""
    lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(data)}
    if len(lengths) != 1 or 0 in lengths:
        raise InputError(
            "data must be arrays that share a leading axis of one or more rows, got shapes "
            f"{[leaf.shape for leaf in jax.tree.leaves(data)]}."
        )
    return lengths.pop()


def placed(data: PyTree) -> PyTree | AbstractHostData:
    """Data where they will stay: arrays with JAX, memory maps on the disk, streams as they are."""
    if data is None or isinstance(data, AbstractHostData):
        return data
    if any(isinstance(leaf, np.memmap) for leaf in jax.tree.leaves(data)):
        return MappedData(data, num_rows(data))
    return jax.tree.map(_held, data)


def _held(leaf: Any) -> Array:
    """The array with JAX, if its whole numbers are not too large for it."""
    array = jnp.asarray(leaf)
    if jnp.issubdtype(array.dtype, jnp.integer) and np.asarray(leaf).dtype != array.dtype:
        values, limits = np.asarray(leaf), jnp.iinfo(array.dtype)
        if values.size and (values.min() < limits.min or values.max() > limits.max):
            raise InputError(
                f"data must hold whole numbers that {array.dtype} can hold, got {values.min()} to "
                f"{values.max()}: give them as floating-point numbers, or less an offset."
            )
    return array
