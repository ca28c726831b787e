"""How a posterior was made: what it takes to make another one in the same way."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nvgd.corrections import Corrections, num_flow_steps
from nvgd.errors import InputError
from nvgd.flow import ParticleFlow
from nvgd.sharding import own_devices
from nvgd.starts import AbstractStart
from nvgd.target import Target

if TYPE_CHECKING:
    from nvgd.posterior import Posterior


class Stage(NamedTuple):
    """A stretch of a run with one flow."""

    until_step: int
    flow: ParticleFlow | Corrections


def plan(flow: ParticleFlow, target: Target, num_steps: int) -> tuple[Stage, ...]:
    """The stages of a run of so many steps: the flow, and corrections where it asks for them."""
    before = num_flow_steps(num_steps) if flow.corrects(target) else num_steps
    first = Stage(before, flow.for_run(before))
    if before == num_steps:
        return (first,)
    return first, Stage(num_steps, Corrections(flow.coordinates, before, num_steps))


def first_flow(stages: Sequence[Stage]) -> ParticleFlow:
    """What a run begins with, which is never corrections."""
    flow = stages[0].flow
    assert isinstance(flow, ParticleFlow)
    return flow


class Recipe(NamedTuple):
    """The arguments of `sample`, as they were understood."""

    target: Target
    flow: ParticleFlow
    num_particles: int
    num_steps: int | str
    max_steps: int | None
    initial: Any
    seed: int
    thin: int | None
    stages: tuple[Stage, ...]
    """The flow as it was in every part of the run: step sizes may fall towards its end."""

    @property
    def num_corrections(self) -> int:
        """How many corrections the run ended with."""
        if not isinstance(self.stages[-1].flow, Corrections):
            return 0
        return self.stages[-1].until_step - self.stages[-2].until_step

    @property
    def can_start_anew(self) -> bool:
        """Whether other starting particles can be drawn: not so if the user gave them."""
        return self.initial is None or isinstance(self.initial, AbstractStart | str)

    def replicate(self, number: int) -> "Posterior":
        """An independent run, from other starting particles; the number tells them apart."""
        from nvgd.sampling import sample

        return sample(
            self.target,
            self.flow,
            num_particles=self.num_particles,
            num_steps=self.num_steps,
            max_steps=self.max_steps,
            initial=self.initial,
            # Away from the seeds that a person counts up from this one.
            seed=(self.seed + 1_000_003 * number) % 2**32,
            thin=self.thin,
            devices=own_devices(),
            progress=False,
        )


def known_recipe(recipe: Recipe | None, purpose: str) -> Recipe:
    """The recipe, or an error that says when there is one."""
    if recipe is None:
        raise InputError(
            f"{purpose} runs the sampler again, which only a posterior can that nvgd.sample has "
            "just returned, not one that was loaded from a file."
        )
    return recipe
