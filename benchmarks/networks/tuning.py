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
    """The rate with the largest log likelihood of held-out rows (x, y).

    Rates are tried in order, until the last one is worse than the best.

    Arguments:
        run: positions of the networks, with a leading axis, for a target and a rate.
        target: the posterior given the other training rows.
    """
    model: Any = target.model
    scores: list[float] = []
    for rate in rates:
        found = model.predict(
            jax.random.key(0), run(target, rate), x, y=y, quantiles=(), samples=False
        )
        value = float(np.mean(found.log_likelihood))
        # Where some networks diverge, the mean predicts worse than a constant.
        is_sound = np.mean((found.mean - y) ** 2) <= np.var(y)
        scores.append(value if np.isfinite(value) and is_sound else -np.inf)
        if scores[-1] < max(scores):
            break
    return rates[int(np.argmax(scores))]
