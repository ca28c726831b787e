"""Ways to stand in for −∇log q: a trained witness, a kernel, or noise; and their extensions."""

from nvgd.directions.annealed import Annealed, Cycles
from nvgd.directions.base import AbstractDirection, AbstractField, Diagnostics, Fit
from nvgd.directions.fraction import LangevinFraction
from nvgd.directions.halves import Halves
from nvgd.directions.kernel import KernelDirection
from nvgd.directions.langevin import LangevinDirection
from nvgd.directions.learned_power import LearnedPower
from nvgd.directions.neural import NeuralDirection, NeuralState
from nvgd.directions.projected import Projected
from nvgd.directions.repulsive import SelfRepulsive
from nvgd.directions.residual import ResidualDirection
from nvgd.directions.stochastic import StochasticStein

__all__ = [
    "AbstractDirection",
    "AbstractField",
    "Annealed",
    "Cycles",
    "Diagnostics",
    "Fit",
    "Halves",
    "KernelDirection",
    "LangevinDirection",
    "LangevinFraction",
    "LearnedPower",
    "NeuralDirection",
    "NeuralState",
    "Projected",
    "ResidualDirection",
    "SelfRepulsive",
    "StochasticStein",
]
