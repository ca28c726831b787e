"""What directions that wrap another one share."""

from typing import TypeVar

import equinox as eqx

from nvgd._support.errors import InputError, check_kind
from nvgd.flow.directions.base import AbstractDirection

State = TypeVar("State")


class AbstractWrapper(AbstractDirection[State]):
    """A direction around another one; what it does not answer itself, the inner one answers."""

    direction: eqx.AbstractVar[AbstractDirection]

    @property
    def capabilities(self):
        """Those of the inner direction."""
        return self.direction.capabilities

    def extra_gradients(self, num_particles):
        """Those of the inner direction."""
        return self.direction.extra_gradients(num_particles)

    def for_run(self, num_steps):
        """The inner direction for a run of this length, wrapped again."""
        return eqx.tree_at(lambda d: d.direction, self, self.direction.for_run(num_steps))

    def check_coordinates(self, coordinates):
        """As the inner direction."""
        self.direction.check_coordinates(coordinates)

    def check_target(self, target):
        """As the inner direction."""
        self.direction.check_target(target)

    def check_inner(self, *, field_for: str | None = None) -> None:
        """Refuse an inner direction that this wrapper would not treat rightly.

        Arguments:
            field_for: what the wrapper needs velocities away from the particles for, if it does.
        """
        name = type(self).__name__
        check_kind("direction", self.direction, AbstractDirection, "directions.Neural()")
        inner, capabilities = type(self.direction).__name__, self.direction.capabilities
        if capabilities.is_tempered:
            raise InputError(
                f"{name}({inner}(...)) would mix the target with a flow at another temperature: "
                f"write {inner}({name}(...), ...)."
            )
        if field_for is not None and not capabilities.has_field:
            raise InputError(
                f"{name} needs velocities {field_for}, and {inner} knows them at its particles "
                "only: use Neural() or Kernel()."
            )
        if field_for is not None and capabilities.depends_on == "resting":
            raise InputError(
                f"{name}({inner}(...)) would fit to all particles what {inner} keeps to one half: "
                f"write {inner}(LangevinFraction({name}(...), τ))."
            )
