"""Movers: update rules that step particles along their velocities."""

from nvgd.flow.aim import Aim
from nvgd.flow.movers.base import AbstractMover
from nvgd.flow.movers.capped import Capped
from nvgd.flow.movers.metropolis import Metropolis
from nvgd.flow.movers.momentum import Momentum
from nvgd.flow.movers.noise_aware import NoiseAware
from nvgd.flow.movers.plain import Euler, Optax
from nvgd.flow.movers.reborn import Reborn
from nvgd.flow.movers.resampled import Resampled
from nvgd.flow.movers.schedules import polynomial_decay

__all__ = [
    "AbstractMover",
    "Aim",
    "Capped",
    "Euler",
    "Metropolis",
    "Momentum",
    "NoiseAware",
    "Optax",
    "Reborn",
    "Resampled",
    "polynomial_decay",
]
