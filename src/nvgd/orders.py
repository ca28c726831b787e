"""In which order a run sees the data rows: random, and a function of seed and step alone."""

import numpy as np

# An order of more rows than this would take too much memory to write down.
MOST_LISTED_ROWS = 2**24


class EpochShuffle:
    """Minibatches without replacement: a fresh order each epoch, a function of seed and step only.

    The rows that do not fill a last batch are left out of that epoch.
    """

    def __init__(self, num_rows: int, batch_size: int, seed: int):
        self.num_rows = num_rows
        self.batch_size = batch_size
        self.seed = seed
        self._epoch = -1
        self._order: np.ndarray | LazyOrder = np.empty(0, np.int32)

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
            generator = np.random.default_rng([self.seed, epoch])
            self._epoch = epoch
            if self.num_rows > MOST_LISTED_ROWS:
                self._order = LazyOrder(self.num_rows, generator)
            else:
                self._order = generator.permutation(self.num_rows).astype(np.int32)
        return self._order[position * self.batch_size : (position + 1) * self.batch_size]


class LazyOrder:
    """The numbers 0 to size − 1 in a random order that is computed where it is looked at.

    A Feistel network: keyed rounds that mix one half of the bits into the other are a bijection of
    [0, 4ᵇ) whatever the mixing; numbers that leave [0, size) go through it again until they are
    back (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
    """

    ROUNDS = 6

    def __init__(self, size: int, generator: np.random.Generator):
        self._size = size
        self._half = np.uint64(max(-(-(size - 1).bit_length() // 2), 1))
        self._mask = np.uint64((1 << int(self._half)) - 1)
        self._keys = generator.integers(0, 2**63, self.ROUNDS, dtype=np.uint64)

    def __getitem__(self, places: slice) -> np.ndarray:
        numbers = self._mixed(np.arange(places.start, places.stop, dtype=np.uint64))
        while np.any(outside := numbers >= self._size):
            numbers[outside] = self._mixed(numbers[outside])
        return numbers.astype(np.int64)

    def _mixed(self, numbers: np.ndarray) -> np.ndarray:
        left, right = numbers >> self._half, numbers & self._mask
        for key in self._keys:
            # Multiplications by odd constants, their high bits folded down.
            word = (right + key) * np.uint64(0x9E3779B97F4A7C15)
            word = (word ^ (word >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            left, right = right, left ^ ((word >> np.uint64(32)) & self._mask)
        return (left << self._half) | right
