"""Data sources and their batches: one interface for arrays, memory maps and streams.

`DeviceData` are JAX arrays, which a step indexes by row number. `MappedData` stay on disk, and a
`BatchStream` delivers batches in its own order. The host reads both, for as many steps as fit a
small buffer.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from nvgd._support.devices import Placement
from nvgd._support.errors import InputError
from nvgd.targets.epochs import EpochShuffle

# Size of the host's read buffer; its batches are held twice, by NumPy and by JAX.
BUFFER_BYTES = 2**24


class AbstractBatches(ABC):
    """The sequence of batches of a run; the same for the same seed."""

    @abstractmethod
    def take(self, first_step: int, num_steps: int, part: slice = slice(None)) -> PyTree:
        """The batches of `num_steps` steps from `first_step` on; the leading axis counts steps.

        They are in the form that `AbstractData.batch` takes: rows, or row numbers. `first_step`
        never decreases between calls.

        Arguments:
            part: the rows of each batch that this process reads, if the host reads the data.
        """

    def read_ahead(self, first_step: int, num_steps: int, part: slice) -> None:
        """Start reading the batches that `take` will probably return next."""
        del first_step, num_steps, part


class AbstractData(ABC):
    """The N rows that a likelihood sums over."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """N, the number of rows."""

    @property
    @abstractmethod
    def example(self) -> PyTree:
        """Some rows, from which shapes and types can be read."""

    @property
    def rows(self) -> PyTree | None:
        """All rows as JAX arrays; None if they are not held in memory."""
        return None

    @property
    def own_batch_size(self) -> int | None:
        """The batch size, if the data source determines it."""
        return None

    @property
    def can_be_read_again(self) -> bool:
        """Whether the data allow repeated passes over all rows."""
        return True

    @abstractmethod
    def batches(self, batch_size: int, seed: int) -> AbstractBatches:
        """The batches of a run."""

    @abstractmethod
    def blocks(self, num_rows: int) -> Iterator[PyTree]:
        """Iterate over all rows once, in blocks of about `num_rows`."""

    def batch(self, taken: PyTree) -> PyTree:
        """Under `jit`: the batch of one step, from that step's entry of `take`."""
        return taken

    def place(self, taken: PyTree, placement: Placement, batch_size: int) -> PyTree:
        """Place the output of `take` on the devices."""
        return placement.split_batches(taken, batch_size)


class _NumberedRows(AbstractBatches):
    def __init__(self, shuffle: EpochShuffle):
        self._shuffle = shuffle

    def take(self, first_step, num_steps, part=slice(None)):
        del part
        return self._shuffle.rows(first_step, num_steps)


class DeviceData(eqx.Module, AbstractData):
    """Data held as JAX arrays; batches are row numbers."""

    arrays: PyTree

    @property
    def num_rows(self):
        """The common length of the arrays' leading axes."""
        return count_rows(self.arrays)

    @property
    def example(self):
        """All rows."""
        return self.arrays

    @property
    def rows(self):
        """All rows."""
        return self.arrays

    def batches(self, batch_size, seed):
        """Shuffled row numbers."""
        return _NumberedRows(EpochShuffle(self.num_rows, batch_size, seed))

    def batch(self, taken):
        """The rows with these numbers."""
        return jax.tree.map(lambda leaf: leaf[taken], self.arrays)

    def blocks(self, num_rows):
        """Consecutive slices."""
        for first in range(0, self.num_rows, num_rows):
            yield jax.tree.map(lambda leaf, f=first: leaf[f : f + num_rows], self.arrays)

    def place(self, taken, placement, batch_size):
        """Replicate the row numbers; each device then takes its own rows."""
        del batch_size
        return placement.replicate(taken)


def steps_at_a_time(taken: PyTree, capacity: int) -> int:
    """Number of steps whose batches fit the buffer; at least 1, at most `capacity`.

    Arguments:
        taken: the output of `AbstractBatches.take` for one step.
    """
    num_bytes = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(taken))
    return int(np.clip(BUFFER_BYTES // max(num_bytes, 1), 1, capacity))


def count_rows(arrays: PyTree) -> int:
    """The common length of the arrays' leading axes; refuse arrays of different lengths."""
    lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(arrays)}
    if len(lengths) != 1 or 0 in lengths:
        raise InputError(
            "data must be arrays that share a leading axis of one or more rows, got shapes "
            f"{[leaf.shape for leaf in jax.tree.leaves(arrays)]}."
        )
    return lengths.pop()
