"""In which coordinates a direction sees the particles."""

from nvgd.coordinates.adaptive import Adaptive
from nvgd.coordinates.base import AbstractCoordinates, AbstractFrame, Diagonal, Identity

__all__ = ["AbstractCoordinates", "AbstractFrame", "Adaptive", "Diagonal", "Identity"]
