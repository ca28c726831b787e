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

    def check_inner(self, *, field_for: str | None = None, allows_halves: bool = False) -> None:
        """Refuse an inner direction that the wrapper cannot treat correctly.

        Arguments:
            field_for: where the wrapper evaluates velocities away from the particles, if it does.
            allows_halves: whether the inner direction may move half of the particles per step.
        """
        name = type(self).__name__
        check_kind("direction", self.direction, AbstractDirection, "directions.Neural()")
        inner, capabilities = type(self.direction).__name__, self.direction.capabilities
        if capabilities.is_tempered:
            way_out = {
                "Annealed": "use one schedule, such as Cycles(num_cycles)",
                "Halves": "anneal without Halves",
            }.get(name, f"write {inner}({name}(...), ...)")
            raise InputError(
                f"{name} cannot wrap {inner}, which follows another temperature: {way_out}."
            )
        if field_for is not None and not capabilities.has_field:
            raise InputError(
                f"{name} needs velocities {field_for}, and {inner} has them at its particles only: "
                "use Neural() or Kernel()."
            )
        if capabilities.depends_on == "resting" and not allows_halves:
            is_projected = name == "Projected"
            way_out = "write Halves(LangevinFraction(Projected(...), τ))" if is_projected else ""
            raise InputError(
                f"{name} would let one half of the particles depend on the other, which {inner} "
                f"keeps apart: {way_out or f'leave {name} out'}."
            )
