"""The default with one part taken out: what does each bring?"""

from typing import Any

import nvgd
from nvgd.coordinates import AbstractCoordinates
from nvgd.coordinates.base import AffineFrame
from nvgd.robust import student_scatter

NEVER = 10**9


class RobustWhitening(AbstractCoordinates[None]):
    """The scatter of `Adaptive`, and no driver."""

    def init(self, particles):
        """Nothing to remember."""
        del particles

    def fit(self, particles, scores, state, *, step):
        """Whitened by a Student-t fit."""
        del scores, state, step
        return AffineFrame(*student_scatter(particles, 4)), None


def _with_mover(**settings: Any) -> nvgd.ParticleFlow:
    default = nvgd.NVGD()
    mover = nvgd.Capped(**settings)
    return nvgd.ParticleFlow(default.coordinates, default.direction, mover, corrected=True)


FLOWS: dict[str, nvgd.ParticleFlow] = {
    "without_corrections": nvgd.NVGD(corrected=False),
    "without_driver": nvgd.NVGD(coordinates=RobustWhitening()),
    "ordinary_covariance": nvgd.NVGD(coordinates=nvgd.Whitened()),
    "diagonal": nvgd.NVGD(coordinates=nvgd.Diagonal()),
    "without_coordinates": nvgd.NVGD(coordinates=nvgd.Identity()),
    # A network that never leaves zero.
    "without_network": nvgd.NVGD(learning_rate=1e-30, max_inner_steps=1),
    "exact_trace": nvgd.NVGD(divergence="exact"),
    "without_caps": _with_mover(cap=1e9),
    "without_rebirth": _with_mover(rebirth_every=NEVER),
    "paper": nvgd.NVGD.paper(),
}
