"""Directions: ways to approximate the unknown −∇log q.

`Neural` trains a witness, `Stochastic` trains one on several minibatches, and `Residual` trains the
remainder after a normal repulsion. `Kernel` is SVGD's field. `Langevin` replaces −∇log q by noise.
The others wrap a direction.
"""

from nvgd.flow.aim import AbstractField, TargetView
from nvgd.flow.directions.annealed import Annealed, Cycles
from nvgd.flow.directions.base import AbstractDirection, Capabilities, Fit
from nvgd.flow.directions.fraction import LangevinFraction
from nvgd.flow.directions.halves import Halves
from nvgd.flow.directions.kernel import Kernel
from nvgd.flow.directions.langevin import Langevin
from nvgd.flow.directions.neural import Neural
from nvgd.flow.directions.projected import Projected
from nvgd.flow.directions.repulsive import SelfRepulsive
from nvgd.flow.directions.residual import Residual
from nvgd.flow.directions.stochastic import Stochastic

__all__ = [
    "AbstractDirection",
    "AbstractField",
    "Annealed",
    "Capabilities",
    "Cycles",
    "Fit",
    "Halves",
    "Kernel",
    "Langevin",
    "LangevinFraction",
    "Neural",
    "Projected",
    "Residual",
    "SelfRepulsive",
    "Stochastic",
    "TargetView",
]
