"""The random order of the data rows in a run, a function of seed and step only."""

import numpy as np

# Up to this many rows, the order of an epoch is a single permutation held in memory.
MOST_LISTED_ROWS = 2**24
# With more rows, blocks of BLOCK_ROWS are permuted, then rows among BLOCKS_AT_A_TIME blocks.
BLOCK_ROWS = 2**12
BLOCKS_AT_A_TIME = 2**8


class EpochShuffle:
    """Minibatches without replacement, in a new random order in each epoch.

    Rows left over after the last full batch are not used in that epoch.
    """

    def __init__(self, num_rows: int, batch_size: int, seed: int):
        self.num_rows = num_rows
        self.batch_size = batch_size
        self.seed = seed
        self._epoch = -1
        self._order: np.ndarray | BlockShuffle = np.empty(0, np.int32)

    @property
    def steps_per_epoch(self) -> int:
        """Number of full batches per epoch."""
        is_listed = self.num_rows <= MOST_LISTED_ROWS
        num_rows = self.num_rows if is_listed else self.num_rows - self.num_rows % BLOCK_ROWS
        return num_rows // self.batch_size

    def rows(self, first_step: int, num_steps: int) -> np.ndarray:
        """Row numbers of the steps from `first_step` on, of shape (num_steps, batch_size)."""
        return np.stack([self._batch(step) for step in range(first_step, first_step + num_steps)])

    def _batch(self, step: int) -> np.ndarray:
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch = epoch
            if self.num_rows > MOST_LISTED_ROWS:
                self._order = BlockShuffle(self.num_rows, [self.seed, epoch])
            else:
                generator = np.random.default_rng([self.seed, epoch])
                self._order = generator.permutation(self.num_rows).astype(np.int32)
        return self._order[position * self.batch_size : (position + 1) * self.batch_size]


class BlockShuffle:
    """The numbers 0 to size − 1 in random order, with one window in memory at a time.

    Blocks of 4,096 consecutive numbers are permuted. A window consists of 256 successive blocks,
    about a million numbers, which are permuted among themselves. All numbers are shifted by a
    random offset modulo size, so that the incomplete block, which is left out, differs between
    epochs.
    """

    def __init__(self, size: int, seed: list[int]):
        generator = np.random.default_rng(seed)
        self._size, self._seed = size, seed
        self._offset = int(generator.integers(size))
        self._blocks = generator.permutation(size // BLOCK_ROWS)
        self._window, self._rows = -1, np.empty(0, np.int64)

    def __getitem__(self, places: slice) -> np.ndarray:
        length = BLOCK_ROWS * BLOCKS_AT_A_TIME
        parts, start = [], places.start
        while start < places.stop:
            window, first = divmod(start, length)
            part = self._rows_of(window)[first : first + places.stop - start]
            parts.append(part)
            start += len(part)
        return np.concatenate(parts)

    def _rows_of(self, window: int) -> np.ndarray:
        if window != self._window:
            blocks = self._blocks[window * BLOCKS_AT_A_TIME : (window + 1) * BLOCKS_AT_A_TIME]
            rows = (blocks[:, None] * BLOCK_ROWS + np.arange(BLOCK_ROWS)).ravel()
            order = np.random.default_rng([*self._seed, window]).permutation(len(rows))
            self._window, self._rows = window, (rows[order] + self._offset) % self._size
        return self._rows
