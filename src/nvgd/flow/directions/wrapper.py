"""Base class of directions that wrap another direction."""

from typing import TypeVar

import equinox as eqx

from nvgd._support.errors import InputError, check_kind
from nvgd.flow.directions.base import AbstractDirection

State = TypeVar("State")


class AbstractWrapper(AbstractDirection[State]):
    """A direction that wraps another one and delegates to it whatever it does not override."""

    direction: eqx.AbstractVar[AbstractDirection]

    @property
    def capabilities(self):
        """Capabilities of the inner direction."""
        return self.direction.capabilities

    def extra_gradients(self, num_particles):
        """Gradients of the inner direction."""
        return self.direction.extra_gradients(num_particles)

    def for_run(self, num_steps):
        """The same wrapper around the inner direction for a run of this length."""
        return eqx.tree_at(lambda d: d.direction, self, self.direction.for_run(num_steps))

    def check_coordinates(self, coordinates):
        """Delegate to the inner direction."""
        self.direction.check_coordinates(coordinates)

    def check_target(self, target):
        """Delegate to the inner direction."""
        self.direction.check_target(target)

    def check_inner(self, *, field_for: str | None = None) -> None:
        """Reject an inner direction that this wrapper does not support.

        Arguments:
            field_for: where the wrapper needs velocities besides the particles, for the error
                message; None if it needs no field.
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
