"""Interpolation between a direction, such as NVGD's or SVGD's, and Langevin dynamics."""

import equinox as eqx
from jaxtyping import Array, Float

from nvgd._support.errors import check_share, plain
from nvgd.flow.aim import AbstractField
from nvgd.flow.directions.base import AbstractDirection
from nvgd.flow.directions.wrapper import AbstractWrapper, State


class _Mixed(AbstractField):
    field: AbstractField
    fraction: float

    def __call__(self, positions, scores):
        return _mix(self.field(positions, scores), scores, self.fraction)

    def rows(self, num_particles):
        return self.field.rows(num_particles)


class LangevinFraction(AbstractWrapper[State]):
    """Represents the share τ of −∇log q by noise and the rest by the inner direction f.

        x ← x + ε[(1 − τ) f(x) + τ ∇log p(x)] + √(2ετ) ξ

    τ = 0 is the inner direction alone, τ = 1 is ULA. A little noise keeps a flow from collapsing
    where its field is poor (many dimensions, few particles). More noise carries particles over low
    barriers, at the cost of a less smooth flow. For SVGD: Gallego and Ríos Insua (2018). If f has a
    noise share τ' itself, the total share is τ + (1 − τ)τ'.

    Arguments:
        direction: f.
        fraction: τ, between 0 and 1.

    Examples:
        >>> direction = nvgd.directions.LangevinFraction(nvgd.directions.Kernel(), 0.3)
        >>> direction.capabilities.noise_share
        0.3
    """

    direction: AbstractDirection
    fraction: float = eqx.field(converter=plain)

    def __check_init__(self):
        self.check_inner(allows_halves=True)
        check_share("fraction", self.fraction)

    def init(self, particles, *, key):
        """State of the inner direction."""
        return self.direction.init(particles, key=key)

    def fit(self, particles, scores, state, *, view, key):
        """The velocities (1 − τ) f + τ ∇log p."""
        fit = self.direction.fit(particles, scores, state, view=view, key=key)
        field = None if fit.field is None else _Mixed(fit.field, self.fraction)
        return fit._replace(velocities=_mix(fit.velocities, scores, self.fraction), field=field)

    @property
    def capabilities(self):
        """Capabilities of the inner direction, with the total noise share."""
        inner = self.direction.capabilities
        share = self.fraction + (1 - self.fraction) * inner.noise_share
        return inner._replace(noise_share=share)


def _mix(
    velocities: Float[Array, "n d"], scores: Float[Array, "n d"], fraction: float
) -> Float[Array, "n d"]:
    return (1 - fraction) * velocities + fraction * scores
