"""Langevin dynamics: noise replaces −∇log q."""

from nvgd.flow.aim import AbstractField
from nvgd.flow.directions.base import AbstractDirection, Capabilities, Fit


class ScoreField(AbstractField):
    """The score ∇log p as a velocity field."""

    def __call__(self, positions, scores):
        """The score."""
        del positions
        return scores


class Langevin(AbstractDirection[None]):
    """The score as velocity; the mover adds noise √(2ε) ξ, which replaces −∇log q in law.

    Particles do not interact: n particles are n parallel chains, one particle is sequential ULA.

    Examples:
        >>> direction = nvgd.directions.Langevin()
        >>> coordinates = nvgd.coordinates.Identity()
        >>> flow = nvgd.ParticleFlow(coordinates, direction, nvgd.movers.Euler(0.01))
    """

    def init(self, particles, *, key):
        """No state."""
        del particles, key

    def fit(self, particles, scores, state, *, view, key):
        """The scores, and the score as a field."""
        del particles, state, view, key
        return Fit(scores, ScoreField(), None, {})

    @property
    def capabilities(self):
        """Noise share 1, and no interaction between particles."""
        return Capabilities(noise_share=1.0, has_field=True, depends_on="itself")
