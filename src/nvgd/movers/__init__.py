"""How particles step along their velocities."""

from nvgd.movers.base import AbstractMover
from nvgd.movers.capped import Capped
from nvgd.movers.metropolis import Metropolis
from nvgd.movers.momentum import Momentum
from nvgd.movers.noise_aware import NoiseAware
from nvgd.movers.plain import Euler, Optax, StepSize, choose_mover
from nvgd.movers.resampled import Resampled
from nvgd.movers.schedules import PolynomialDecay, polynomial_decay

__all__ = [
    "AbstractMover",
    "Capped",
    "Euler",
    "Metropolis",
    "Momentum",
    "NoiseAware",
    "Optax",
    "PolynomialDecay",
    "Resampled",
    "StepSize",
    "choose_mover",
    "polynomial_decay",
]
