"""What the figures of several experiments share."""

import numpy as np
from matplotlib.axes import Axes


def band(axes: Axes, x: np.ndarray, curves: np.ndarray, colour: str, label: str) -> None:
    """Mean and standard deviation over runs, the leading axis of `curves`."""
    mean, deviation = curves.mean(axis=0), curves.std(axis=0)
    axes.plot(x, mean, color=colour, label=label or None, linewidth=1.8)
    axes.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.2, linewidth=0)
