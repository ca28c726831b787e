"""Langevin dynamics: noise stands in for −∇log q."""

from typing import ClassVar

from jaxtyping import Array, Float, PRNGKeyArray

from nvgd.directions.base import AbstractDirection, AbstractField, Diagnostics, Fit


class ScoreField(AbstractField):
    """∇log p itself."""

    def __call__(self, positions, scores):
        """The score."""
        del positions
        return scores


class LangevinDirection(AbstractDirection[None]):
    """The score alone; the mover adds √(2ε) ξ, which has the law of the missing −∇log q.

    Particles do not interact: n of them are n parallel chains, one of them is sequential ULA.
    """

    min_particles: ClassVar[int] = 1

    def init(self, particles: Float[Array, "n d"], *, key: PRNGKeyArray) -> None:
        """Nothing to remember."""
        del key
        self.check_particles(particles)

    def __call__(
        self,
        particles: Float[Array, "n d"],
        scores: Float[Array, "n d"],
        state: None,
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "n d"], None, Diagnostics]:
        """Up the log density."""
        del particles, state, key
        return scores, None, {}

    def fit(self, particles, scores, state, *, view, key):
        """The score, here and everywhere."""
        del particles, state, view, key
        return Fit(scores, ScoreField(), None, {})

    @property
    def has_field(self):
        """The score."""
        return True

    @property
    def noise_share(self):
        """All of it."""
        return 1.0

    @property
    def is_reversible(self):
        """Particles do not see each other."""
        return True
