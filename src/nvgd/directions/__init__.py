"""Three ways to stand in for −∇log q: a trained witness, a kernel, or noise."""

from nvgd.directions.base import AbstractDirection, AbstractField, Diagnostics, Fit
from nvgd.directions.kernel import KernelDirection
from nvgd.directions.langevin import LangevinDirection
from nvgd.directions.neural import NeuralDirection, NeuralState
from nvgd.directions.residual import ResidualDirection

__all__ = [
    "AbstractDirection",
    "AbstractField",
    "Diagnostics",
    "Fit",
    "KernelDirection",
    "LangevinDirection",
    "NeuralDirection",
    "NeuralState",
    "ResidualDirection",
]
