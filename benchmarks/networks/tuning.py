"""The choice of a rival's rate on held-out training rows."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from nvgd.targets.target import Target


def best_rate(
    run: Callable[[Target, float], Any],
    rates: Sequence[float],
    target: Target,
    x: np.ndarray,
    y: np.ndarray,
) -> float:
    """The rate with the largest log likelihood of held-out rows (x, y), of all rates.

    Arguments:
        run: positions of the networks, with a leading axis, for a target and a rate.
        rates: in increasing order; the smallest if networks diverge at all of them.
        target: the posterior given the other training rows.
    """
    model: Any = target.model

    def score(rate: float) -> float:
        found = model.predict(
            jax.random.key(0), run(target, rate), x, y=y, quantiles=(), samples=False
        )
        value = float(np.mean(found.log_likelihood))
        # Where some networks diverge, the mean predicts worse than a constant.
        is_sound = np.isfinite(value) and np.mean((found.mean - y) ** 2) <= np.var(y)
        return value if is_sound else -np.inf

    return max(rates, key=score)
