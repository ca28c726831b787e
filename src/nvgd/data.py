"""Where data rows live, and which of them each step sees.

Arrays are held by JAX, and a step takes its rows by number. Memory maps stay on the disk, and
streams come as they come: the host reads their batches, for as many steps as fit a small buffer.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from nvgd.errors import InputError, check_count

# Batches read ahead by the host are held twice, here and by JAX: keep them small.
BUFFER_BYTES = 2**24

# Rows in one block of a pass over all data, unless batches are larger.
ROWS_PER_BLOCK = 1024


class EpochShuffle:
    """Minibatches without replacement: a fresh order each epoch, a function of seed and step only.

    The rows that do not fill a last batch are left out of that epoch.
    """

    def __init__(self, num_rows: int, batch_size: int, seed: int):
        self.num_rows = num_rows
        self.batch_size = batch_size
        self.seed = seed
        self._epoch = -1
        self._order = np.empty(0, np.int32)

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in the data."""
        return self.num_rows // self.batch_size

    def rows(self, first_step: int, num_steps: int) -> np.ndarray:
        """Row indices, shape (num_steps, batch_size), for the steps from `first_step` on."""
        return np.stack([self._batch(step) for step in range(first_step, first_step + num_steps)])

    def _batch(self, step: int) -> np.ndarray:
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            order = np.random.default_rng([self.seed, epoch]).permutation(self.num_rows)
            self._epoch, self._order = epoch, order.astype(np.int32)
        return self._order[position * self.batch_size : (position + 1) * self.batch_size]


class AbstractBatches(ABC):
    """What the steps of a run see, one after the other; the same for the same seed."""

    @abstractmethod
    def take(self, first_step: int, num_steps: int) -> PyTree:
        """What `Target.batch` makes the batches of these steps from, with a leading axis of steps.

        Steps that lie before an earlier call's first step are not asked for again.
        """


class NumberedRows(AbstractBatches):
    """Row numbers, for data that JAX holds."""

    def __init__(self, shuffle: EpochShuffle):
        self._shuffle = shuffle

    def take(self, first_step, num_steps):
        """The numbers."""
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
        for first in range(0, self.num_rows, num_rows):
            part = slice(first, first + num_rows)
            yield jax.tree.map(lambda leaf, part=part: np.asarray(leaf[part]), self.data)


class _MappedBatches(AbstractBatches):
    def __init__(self, data: PyTree, shuffle: EpochShuffle):
        self._data, self._shuffle = data, shuffle

    def take(self, first_step, num_steps):
        rows = self._shuffle.rows(first_step, num_steps)
        return jax.tree.map(lambda leaf: np.asarray(leaf[rows]), self._data)


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

    def take(self, first_step, num_steps):
        while self._first_step + len(self._buffer) < first_step + num_steps:
            self._buffer.append(self._next())
            if self._first_step < first_step:
                self._first_step += 1
                self._buffer.pop(0)
        surplus = first_step - self._first_step
        self._first_step, self._buffer = first_step, self._buffer[surplus:]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *self._buffer[:num_steps])

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
    return jax.tree.map(jnp.asarray, data)
