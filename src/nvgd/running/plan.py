"""The plan of a run: its stages, and the step at which each ends."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from nvgd.exact.adaptation import searched
from nvgd.exact.corrections import SHARE_ADAPTING, Corrections
from nvgd.exact.hierarchy_frame import (
    MARGIN,
    Hierarchical,
    HierarchyFrame,
    find_hierarchy,
    normal_misfit,
)
from nvgd.exact.lost_chains import is_lost
from nvgd.exact.modes import Modes
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.flow.stage import AbstractStage
from nvgd.posterior.chains import Chains
from nvgd.running.mode_search import search_modes
from nvgd.targets.arrival import arrived
from nvgd.targets.corrected_rows import Subsample
from nvgd.targets.subsamples import MOST_BATCHES, subsample
from nvgd.targets.target import Target

# The flow takes FLOW_SHARE of a run with corrections, but at least FEWEST_FLOW_STEPS steps.
FEWEST_FLOW_STEPS = 400
FLOW_SHARE = 0.2
# Fewer steps of corrections are not worth their compilation.
FEWEST_CORRECTIONS = 100
# With minibatches, short first rounds of corrections bring the particles to where the subsample of
# the next one is drawn.
APPROACH = 200


class Active(NamedTuple):
    """The active stage and its state."""

    kind: str
    stage: AbstractStage
    state: Any
    subsample: Subsample | None = None
    """The rows that stand for all rows of a target with minibatches; None if the stage uses all
    rows, or batches."""
    modes: Modes | None = None
    """The separate modes that the corrections know; None if there are none."""
    hierarchy: HierarchyFrame | None = None
    """The hierarchy that was found after a round of corrections; None if there is none."""

    @property
    def is_cramped(self) -> bool:
        """Whether the particles would go farther than the subsample of the stage allows."""
        return self.subsample is not None and self.subsample.confines(self.state.particles)

    def target(self, whole: Target) -> Target:
        """The target that the stage evaluates."""
        return whole if self.subsample is None else self.subsample.target(whole)


class AbstractLeg(ABC):
    """A part of a run, taken by one stage up to the step `until_step`."""

    kind: str
    until_step: int
    is_approach = False
    """Whether this leg only brings the particles to where the next one begins."""

    @abstractmethod
    def begins(self, active: Active) -> bool:
        """Whether this leg has a stage of its own to begin, or goes on with the active one."""

    def approach(self, target: Target, active: Active, seed: int) -> Active:
        """Bring the particles nearer before this leg begins; by default, nothing is done."""
        del target, seed
        return active

    def look_ahead(self, target: Target, active: Active, seed: int) -> Subsample | None:
        """The subsample of the rows that this leg's stage uses; None by default."""
        del target, active, seed
        return None

    def search(
        self,
        target: Target,
        active: Active,
        starts: np.ndarray,
        chains: Chains | None,
        key: PRNGKeyArray,
    ) -> tuple[Active, int]:
        """Move particles between modes before this leg, and count the gradients that this takes.

        By default, nothing is done.

        Arguments:
            starts: the particles at the start of the run.
            chains: the draws of the active stage; None if there are none.
        """
        del target, starts, chains, key
        return active, 0

    @abstractmethod
    def enter(
        self, target: Target, active: Active, subsample: Subsample | None, key: PRNGKeyArray
    ) -> Active:
        """Begin this leg's stage, or go on with the active one.

        Arguments:
            target: the target of the run.
            subsample: the result of `look_ahead`.
        """


class FlowLeg(AbstractLeg):
    """Steps of the flow.

    Arguments:
        length: number of flow steps over which step sizes are scheduled.
    """

    kind = "flow"

    def __init__(self, flow: ParticleFlow, until_step: int, length: int):
        self.until_step = until_step
        self.flow = flow.for_run(length)

    def begins(self, active):
        """Never: a run begins with its flow."""
        del active
        return False

    def enter(self, target, active, subsample, key):
        """Keep the state, with this leg's step sizes."""
        del target, subsample, key
        return Active(self.kind, self.flow, active.state)


class CorrectionLeg(AbstractLeg):
    """A round of corrections, in the coordinates fitted by the flow.

    With minibatches, every round draws a new subsample of the rows, near where its particles are.

    Arguments:
        most_batches, fewest_batches: largest and smallest size of the subsample, in batches.
        is_approach: whether the next leg draws another subsample, for the draws of the run.
        adapting: share of the round that adapts.
    """

    kind = "corrections"

    def __init__(
        self,
        flow: ParticleFlow,
        until_step: int,
        most_batches: int = MOST_BATCHES,
        fewest_batches: int = 1,
        *,
        is_approach: bool = False,
        adapting: float = SHARE_ADAPTING,
    ):
        self.until_step, self._most_batches = until_step, most_batches
        self.is_approach, self.adapting = is_approach, adapting
        self._fewest_batches = fewest_batches
        self._coordinates = flow.coordinates

    def begins(self, active):
        """After the flow, and after an earlier round."""
        return active.kind != self.kind or int(active.state.step) >= cast(Any, active.stage).end

    def approach(self, target, active, seed):
        """Newton steps of the ensemble after a flow on minibatches."""
        if not target.is_noisy or active.kind == self.kind:
            return active
        particles = active.stage.finish(target, active.state)
        state = active.state._replace(particles=arrived(target, particles, seed))
        return active._replace(state=state)

    def look_ahead(self, target, active, seed):
        """A new subsample at the beginning of a round."""
        if not target.is_noisy or not self.begins(active):
            return active.subsample
        # A noisy flow leaves the particles too far apart; after a first round, they should not be.
        return subsample(
            target,
            active.state.particles,
            seed,
            self._most_batches,
            fewest_batches=self._fewest_batches,
            or_all=active.kind == self.kind,
            is_cramped=active.is_cramped,
        )

    def search(self, target, active, starts, chains, key):
        """Particles move to empty modes after a flow on all rows; after a round, lost ones move."""
        if active.kind == self.kind:
            return _with_hierarchy(_without_lost(active, chains), chains), 0
        if target.is_noisy:
            return active, 0
        particles = active.stage.finish(target, active.state)
        found = search_modes(target, particles, starts, key)
        state = active.state._replace(particles=found.particles)
        return active._replace(state=state, modes=found.modes), found.num_gradients

    def enter(self, target, active, subsample, key):
        """Begin a round from the particles; the round in progress ends where this leg does."""
        step = active.state.step
        if not self.begins(active):
            begun: Any = active.stage
            num_steps = jnp.asarray(self.until_step - begun.first_step)
            return active._replace(
                stage=eqx.tree_at(lambda stage: stage.num_steps, begun, num_steps)
            )
        particles, num_steps = active.stage.finish(target, active.state), self.until_step - step
        if active.kind == self.kind:
            earlier, state = cast(Any, active.stage), active.state
            coordinates, memory = self._coordinates, active.hierarchy
            if memory is not None:
                coordinates = Hierarchical()
            else:
                memory = searched(coordinates, state.particles, state.scores, earlier.memory)
            stage = Corrections(
                coordinates, memory, step, num_steps, state.log_size, active.modes, self.adapting
            )
        else:
            memory = active.state.coordinates
            if target.is_noisy:
                # A flow with noisy scores does not search.
                memory = self._coordinates.init(particles)
            coordinates = self._coordinates
            if active.hierarchy is not None:
                coordinates, memory = Hierarchical(), active.hierarchy
            stage = Corrections.of(
                coordinates, memory, step, num_steps, particles, active.modes, self.adapting
            )
        begun = Active(self.kind, stage, None, subsample, active.modes, active.hierarchy)
        return begun._replace(state=stage.init(begun.target(target), particles, key=key))


def _without_lost(active: Active, chains: Chains | None) -> Active:
    """Replace particles of lost chains by copies of others, at random."""
    lost = np.array([], bool) if chains is None else is_lost(active.state.frame, *chains)
    if not lost.any():
        return active
    kept = np.random.default_rng(int(active.state.step)).permutation(np.flatnonzero(~lost))
    source = np.arange(len(lost))
    source[lost] = np.resize(kept, int(lost.sum()))
    fields = ("particles", "log_densities", "scores")
    copied = {name: getattr(active.state, name)[source] for name in fields}
    return active._replace(state=active.state._replace(**copied))


Plan = tuple[AbstractLeg, ...]


def plan(flow: ParticleFlow, target: Target, num_steps: int) -> Plan:
    """The legs of a run of `num_steps`: the flow, then corrections if the flow uses them."""
    before = num_flow_steps(num_steps) if flow.corrects(target) else num_steps
    first = FlowLeg(flow, before, before)
    if before == num_steps:
        return (first,)
    approach = before + APPROACH
    if not target.is_noisy or num_steps - approach < FEWEST_CORRECTIONS:
        return first, CorrectionLeg(flow, num_steps)
    return first, CorrectionLeg(flow, approach, is_approach=True), CorrectionLeg(flow, num_steps)


def leg_at(legs: Plan, step: int, kind: str = "flow") -> AbstractLeg:
    """The leg of the step after `step`, for a run in a stage of this kind.

    A run never returns to an earlier stage: a run that is extended continues its corrections,
    although the flow of a run of that length would be longer, too.
    """
    first = next((i for i, leg in enumerate(legs) if leg.kind == kind), 0)
    return next((leg for leg in legs[first:] if step < leg.until_step), legs[-1])


def num_flow_steps(num_steps: int) -> int:
    """Number of flow steps in a run of `num_steps` with corrections."""
    number = max(FEWEST_FLOW_STEPS, round(FLOW_SHARE * num_steps))
    return number if num_steps - number >= FEWEST_CORRECTIONS else num_steps


def _with_hierarchy(active: Active, chains: Chains | None) -> Active:
    """Look for a hierarchy in the draws of a finished round, for the next one.

    A known hierarchy stays in use unless a better one is found.
    """
    if chains is None:
        return active
    state = active.state
    limit = normal_misfit(np.asarray(state.expressed), np.asarray(state.expressed_scores))
    is_known = active.hierarchy is not None
    found = find_hierarchy(chains.positions, chains.scores, limit if is_known else limit - MARGIN)
    return active if found is None else active._replace(hierarchy=found)
