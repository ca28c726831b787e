"""Langevin dynamics: noise stands in for −∇log q."""

from nvgd.flow.aim import AbstractField
from nvgd.flow.directions.base import AbstractDirection, Capabilities, Fit


class ScoreField(AbstractField):
    """∇log p itself."""

    def __call__(self, positions, scores):
        """The score."""
        del positions
        return scores


class Langevin(AbstractDirection[None]):
    """The score alone; the mover adds √(2ε) ξ, which has the law of the missing −∇log q.

    Particles do not interact: n of them are n parallel chains, one of them is sequential ULA.
    """

    def init(self, particles, *, key):
        """Nothing to remember."""
        del particles, key

    def fit(self, particles, scores, state, *, view, key):
        """The score, here and everywhere."""
        del particles, state, view, key
        return Fit(scores, ScoreField(), None, {})

    @property
    def capabilities(self):
        """All of −∇log q is noise."""
        return Capabilities(noise_share=1.0, has_field=True, depends_on="itself")
