"""Which data rows each step sees."""

import numpy as np


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
