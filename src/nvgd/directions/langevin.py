"""Langevin dynamics: noise stands in for −∇log q."""

from typing import ClassVar

from jaxtyping import Array, Float, PRNGKeyArray

from nvgd.directions.base import AbstractDirection, Diagnostics


class LangevinDirection(AbstractDirection[None]):
    """The score alone; the mover adds √(2ε) ξ, which has the law of the missing −∇log q.

    Particles do not interact: n of them are n parallel chains, one of them is sequential ULA.
    """

    noise_share: ClassVar[float] = 1.0
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
