"""The default with one part removed or replaced."""

from typing import ClassVar, Literal

import nvgd
from nvgd._support.robust import student_scatter
from nvgd.coordinates import AbstractCoordinates
from nvgd.flow.coordinates.base import AffineFrame
from nvgd.movers import AbstractMover, Capped, Reborn

# Steps between rebirths: more than any run has.
NEVER = 10**9


class RobustWhitening(AbstractCoordinates[None]):
    """The scatter of `Adaptive` without its driver."""

    frame_kind: ClassVar[Literal["fixed", "affine", "general"]] = "affine"

    def init(self, particles, *, is_noisy=False):
        """Nothing to remember."""
        del particles, is_noisy

    def fit(self, particles, scores, state):
        """Whitened by a Student-t fit."""
        del scores, state
        return AffineFrame.of(*student_scatter(particles, 4))


def _with_mover(mover: AbstractMover) -> nvgd.ParticleFlow:
    default = nvgd.NVGD()
    return nvgd.ParticleFlow(default.coordinates, default.direction, mover, corrected=True)


FLOWS: dict[str, nvgd.ParticleFlow] = {
    "without_corrections": nvgd.NVGD(corrected=False),
    "without_driver": nvgd.NVGD(coordinates=RobustWhitening()),
    "ordinary_covariance": nvgd.NVGD(coordinates=nvgd.coordinates.Whitened()),
    "diagonal": nvgd.NVGD(coordinates=nvgd.coordinates.Diagonal()),
    "without_coordinates": nvgd.NVGD(coordinates=nvgd.coordinates.Identity()),
    # The network stays zero.
    "without_network": nvgd.NVGD(learning_rate=1e-30, max_inner_steps=1),
    "exact_trace": nvgd.NVGD(divergence="exact"),
    "without_caps": _with_mover(Reborn(Capped(cap=1e9))),
    "without_rebirth": _with_mover(Reborn(Capped(), every=NEVER)),
    "paper": nvgd.NVGD.paper(),
}
