"""Coordinates: in which a direction sees the particles.

With x = T(u), a direction that works on u and the score there moves x by a preconditioned flow.
"""

from nvgd.flow.coordinates.adaptive import Adaptive
from nvgd.flow.coordinates.base import AbstractCoordinates, AbstractFrame, Diagonal, Identity
from nvgd.flow.coordinates.preconditioners import Curved, Preconditioned, Whitened
from nvgd.targets.information import fisher_information, hessian_information

__all__ = [
    "AbstractCoordinates",
    "AbstractFrame",
    "Adaptive",
    "Curved",
    "Diagonal",
    "Identity",
    "Preconditioned",
    "Whitened",
    "fisher_information",
    "hessian_information",
]
