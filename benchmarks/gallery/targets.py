"""The targets of the gallery, with what to look for in each."""

from typing import NamedTuple

import numpy as np

from nvgd.densities import AbstractDensity, Banana, Funnel, GaussianMixture, Ring


class Shown(NamedTuple):
    """A density, the part of the plane that is shown, and what to look for."""

    density: AbstractDensity
    across: tuple[float, float]
    up: tuple[float, float]
    sentence: str
    is_turned: bool = False
    """Whether the first coordinate points up, as in the usual picture of a funnel."""


def two_moons(num_parts: int = 20, radius: float = 2.0, width: float = 0.25) -> GaussianMixture:
    """Two interlocking arcs, each a chain of normal distributions, so that draws are exact."""
    angles = np.linspace(0, np.pi, num_parts)
    arc = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    shift = np.array([radius / 2, 0.4])
    return GaussianMixture(
        np.concatenate([arc - shift, shift - arc]), np.full(2 * num_parts, width)
    )


TARGETS = {
    "banana": Shown(
        Banana(bend=0.15),
        (-10.0, 10.0),
        (-5.5, 12.5),
        "A bent normal distribution. Both arms are long: methods that step by one size for all "
        "directions are slow to reach their ends.",
    ),
    "ring": Shown(
        Ring(),
        (-4.6, 4.6),
        (-4.6, 4.6),
        "A thin ring around the starting point. Particles must spread along it evenly and keep its "
        "width of 0.3.",
    ),
    "two moons": Shown(
        two_moons(),
        (-4.2, 4.2),
        (-3.0, 3.0),
        "Two interlocking arcs, with hardly any density between them. Half of the particles belong "
        "on each.",
    ),
    "funnel": Shown(
        Funnel(2),
        (-13.0, 13.0),
        (-9.5, 9.0),
        "Neal's funnel, whose width changes by a factor of thousands from its neck to its mouth. "
        "No single step size suits both.",
        is_turned=True,
    ),
    "mixture": Shown(
        GaussianMixture(
            np.array([(0, 0), (4, 3), (-4, 3), (4, -3), (-4, -3)], float),
            np.array([0.6, 0.5, 0.5, 0.5, 0.5]),
            np.array([2.0, 1.0, 1.0, 1.0, 1.0]),
        ),
        (-6.2, 6.2),
        (-5.2, 5.2),
        "Five separate modes; the one in the middle, where all particles start, has a third of the "
        "mass. Crossing to the others goes through regions without density.",
    ),
}
