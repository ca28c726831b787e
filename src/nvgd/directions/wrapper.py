"""What directions that wrap another one share."""

from typing import ClassVar, TypeVar

import equinox as eqx

from nvgd.directions.base import AbstractDirection

State = TypeVar("State")


class AbstractWrapper(AbstractDirection[State]):
    """A direction around another one, which it asks first.

    What it says of itself is what the inner direction says, unless a wrapper knows better.
    """

    direction: eqx.AbstractVar[AbstractDirection]

    min_particles: ClassVar[int] = 1

    def __call__(self, particles, scores, state, *, key):
        """Velocities at the particles, without a view of the target."""
        fit = self.fit(particles, scores, state, view=None, key=key)
        return fit.velocities, fit.state, fit.diagnostics

    @property
    def has_field(self):
        """As the inner direction."""
        return self.direction.has_field

    @property
    def noise_share(self):
        """As the inner direction."""
        return self.direction.noise_share

    @property
    def can_carry(self):
        """As the inner direction."""
        return self.direction.can_carry

    @property
    def moves_halves(self):
        """As the inner direction."""
        return self.direction.moves_halves

    @property
    def is_reversible(self):
        """As the inner direction."""
        return self.direction.is_reversible

    def extra_gradients(self, num_particles):
        """As the inner direction."""
        return self.direction.extra_gradients(num_particles)

    def for_run(self, num_steps):
        """The inner direction's, wrapped again."""
        return eqx.tree_at(lambda d: d.direction, self, self.direction.for_run(num_steps))

    def check_coordinates(self, coordinates):
        """As the inner direction."""
        self.direction.check_coordinates(coordinates)

    def check_target(self, target):
        """As the inner direction."""
        self.direction.check_target(target)
