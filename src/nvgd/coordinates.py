"""Coordinates: changes of variables x = T(u) in which a direction works.

A direction that moves u along the score of the density of u moves x by a preconditioned flow.
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
