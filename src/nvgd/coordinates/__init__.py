"""In which coordinates a direction sees the particles."""

from nvgd.coordinates.adaptive import Adaptive
from nvgd.coordinates.base import AbstractCoordinates, AbstractFrame, Diagonal, Identity
from nvgd.coordinates.preconditioners import Curved, Preconditioned, Whitened

__all__ = [
    "AbstractCoordinates",
    "AbstractFrame",
    "Adaptive",
    "Curved",
    "Diagonal",
    "Identity",
    "Preconditioned",
    "Whitened",
]
