"""One step of the flow: score, coordinates, direction, move."""

import dataclasses
import functools
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from nvgd._support.compilation import quickly_compiled
from nvgd._support.errors import InputError, check_kind, plain
from nvgd.flow.aim import Aim, TargetView
from nvgd.flow.coordinates.base import AbstractCoordinates
from nvgd.flow.directions.base import AbstractDirection
from nvgd.flow.movers.base import AbstractMover
from nvgd.flow.stage import (
    AbstractStage,
    Diagnostics,
    StepInfo,
    num_non_finite,
    root_mean_square_distance,
    step_keys,
)
from nvgd.targets.scores import Scores
from nvgd.targets.subsamples import can_subsample
from nvgd.targets.target import Target


class FlowState(NamedTuple):
    """State of a flow between two steps."""

    particles: Float[Array, "n d"]
    coordinates: PyTree
    direction: PyTree
    """State of the direction; `state.direction.witness` is the network of `NVGD()` and
    `NVGD.paper()`."""
    mover: PyTree
    step: Int[Array, ""]


class Aimed(NamedTuple):
    """Result of the first half of a step: the mover's input, and the other parts' new states."""

    aim: Aim
    coordinates: PyTree
    direction: PyTree
    diagnostics: Diagnostics


class ParticleFlow(AbstractStage):
    """Particles that follow the discretised gradient flow of KL(q‖p) (paper, eqs. 1 and 2).

    A step evaluates one score per particle, expresses particles and scores in the coordinates,
    computes velocities with the direction, and applies them with the mover:

        state = flow.init(target, particles, key=key)
        state, info = flow.step(target, state, key=key)

    Pass the same key to every step: the step number is folded in. Parts that depend on the length
    of the run receive it from `flow.for_run(num_steps)`, which `sample` calls. A flow that is
    stepped by hand without it keeps its initial step sizes and has no corrections.

    Arguments:
        coordinates: the coordinates in which the direction sees the particles.
        direction: computes velocities.
        mover: applies velocities.
        corrected: whether `sample` ends a run with corrections (`nvgd.exact`).

    Examples:
        >>> flow = nvgd.ParticleFlow(
        ...     nvgd.coordinates.Whitened(), nvgd.directions.Kernel(), nvgd.movers.Euler(0.1)
        ... )
        >>> target = nvgd.Target(nvgd.densities.Banana().log_density, dim=2)
        >>> key = jax.random.key(0)
        >>> state = flow.init(target, jax.random.normal(key, (50, 2)), key=key)
        >>> state, info = flow.step(target, state, key=key)
        >>> state.particles.shape
        (50, 2)
    """

    coordinates: AbstractCoordinates
    direction: AbstractDirection
    mover: AbstractMover
    corrected: bool = eqx.field(default=False, converter=plain)

    def __check_init__(self):
        check_kind("coordinates", self.coordinates, AbstractCoordinates, "coordinates.Identity()")
        check_kind("direction", self.direction, AbstractDirection, "directions.Neural()")
        check_kind("mover", self.mover, AbstractMover, "movers.Euler(1e-2)")
        if not isinstance(self.corrected, bool):
            raise InputError(f"corrected must be True or False, got {self.corrected!r}.")
        self.mover.check_parts(self.coordinates, self.direction)
        self.direction.check_coordinates(self.coordinates)

    def init(
        self, target: Target, particles: Float[Array, "n d"], *, key: PRNGKeyArray
    ) -> FlowState:
        """The state before the first step; checks that the parts fit the target."""
        if particles.ndim != 2 or particles.shape[1] != target.dim:
            raise InputError(
                f"particles must have shape (num_particles, {target.dim}), got {particles.shape}."
            )
        self.direction.check_target(target)
        self.mover.check_target(target)
        return _initial_state(self, particles, target.flows_as_noisy, key)

    def corrects(self, target: Target) -> bool:
        """Whether runs on this target end with corrections.

        With minibatches, corrections use a subsample of the rows, which not every target allows.
        """
        is_possible = not target.is_noisy or can_subsample(target)
        return self.corrected and is_possible and not target.model.has_symmetries

    def for_run(self, num_steps: int) -> "ParticleFlow":
        """The flow for a run of known length: step sizes may decay towards its end."""
        parts = self.direction.for_run(num_steps), self.mover.for_run(num_steps)
        return eqx.tree_at(lambda flow: (flow.direction, flow.mover), self, parts)

    @property
    def depends_on_length(self) -> bool:
        """Whether the steps depend on the length of the run."""
        return not eqx.tree_equal(self.for_run(1), self.for_run(2))

    @property
    def needs_target(self):
        """Whether direction or mover evaluate the target themselves."""
        return self.direction.capabilities.evaluates_target or self.mover.evaluates_target

    def is_shared(self, state):
        """Flows that train a network; the programs of others compile in a moment."""
        return self.direction.trains(state.direction) and not self.needs_target

    def is_due(self, state, step):
        """When the coordinates search."""
        return self.coordinates.is_due(state.coordinates, step)

    def prepare(self, state, found, *, key):
        """Let the coordinates search."""
        del key
        parts = self.coordinates, state.particles, found, state.coordinates
        return state._replace(coordinates=_searched(*parts, is_masked=self.mover.rescues))

    def update(self, state, found, view, *, key):
        """Coordinates, direction, move."""
        return self.move(state, self._aimed(state, found, view, key), key=key)

    def finish(self, target: Target, state: FlowState) -> Float[Array, "n d"]:
        """The particles of the state, unchanged."""
        del target
        return state.particles

    def aim(
        self, target: Target, state: FlowState, batch: PyTree = None, *, key: PRNGKeyArray
    ) -> Aimed:
        """The first half of a step: score, coordinates, direction."""
        found = target.log_densities_and_scores(state.particles, batch)
        return self._aimed(state, found, TargetView.of(target, batch), key)

    def _aimed(self, state: FlowState, found: Scores, view: TargetView, key: PRNGKeyArray) -> Aimed:
        particles = state.particles
        is_scored = found.is_finite
        if self.mover.rescues:
            # Particles without a finite score get score zero, until the mover has rescued them.
            found = found.masked()
        frame = self.coordinates.fit(particles, found.scores, state.coordinates)
        expressed, expressed_scores = frame.express(particles, found.scores)
        view = dataclasses.replace(view, frame=frame)
        direction_key, _ = step_keys(key, state.step, 2)
        fit = self.direction.fit(
            expressed, expressed_scores, state.direction, view=view, key=direction_key
        )
        aim = Aim(
            expressed,
            fit.velocities,
            self.direction.capabilities.noise_share,
            found.log_densities,
            is_scored,
            fit.field,
            frame,
            view,
            fit.without_repulsion,
        )
        return Aimed(aim, state.coordinates, fit.state, fit.diagnostics)

    def move(
        self, state: FlowState, aimed: Aimed, *, key: PRNGKeyArray
    ) -> tuple[FlowState, StepInfo]:
        """The second half of a step: the mover, and the step's record."""
        aim = aimed.aim
        _, move_key = step_keys(key, state.step, 2)
        num_particles, dim = state.particles.shape
        expressed, mover_state = self.mover(aim, state.mover, step=state.step, key=move_key)
        moved = aim.frame.restore(expressed)
        if self.mover.rescues:
            # A score so large that the step overflows leaves its particle where it is.
            is_finite = jnp.all(jnp.isfinite(moved), axis=1, keepdims=True)
            moved = jnp.where(is_finite, moved, state.particles)

        diagnostics = {**aimed.diagnostics, **self.mover.diagnostics(mover_state)}
        num_faulty = jnp.sum(~aim.is_scored)
        if self.mover.rescues:
            diagnostics = {**diagnostics, "num_rescued": num_faulty}
            # With more than half of the particles lost, a rescue is not possible.
            num_faulty = jnp.where(num_faulty <= num_particles // 2, 0, num_faulty)
        num_moved = num_particles if aim.field is None else len(aim.field.rows(num_particles))
        num_gradients = (
            num_particles
            + self.coordinates.extra_gradients(num_particles, dim)
            + self.direction.extra_gradients(num_particles)
            + self.mover.extra_gradients(num_moved)
        )
        info = StepInfo(
            log_density=jnp.mean(aim.log_densities, where=aim.is_scored),
            step_norm=root_mean_square_distance(moved, state.particles),
            num_gradients=jnp.array(num_gradients),
            num_faulty_scores=num_faulty,
            num_faulty_moves=num_non_finite(moved),
            diagnostics=diagnostics,
        )
        state = FlowState(moved, aimed.coordinates, aimed.direction, mover_state, state.step + 1)
        return state, info


@functools.partial(quickly_compiled, runs_often=True)
def _searched(
    coordinates: AbstractCoordinates,
    particles: Float[Array, "n d"],
    found: Scores,
    memory: PyTree,
    is_masked: bool,
) -> PyTree:
    found = found.masked() if is_masked else found
    return coordinates.search(particles, found.scores, memory)


@quickly_compiled
def _initial_state(
    flow: ParticleFlow, particles: Float[Array, "n d"], is_noisy: bool, key: PRNGKeyArray
) -> FlowState:
    init_direction = flow.direction.init_noisy if is_noisy else flow.direction.init
    return FlowState(
        particles,
        flow.coordinates.init(particles, is_noisy=is_noisy),
        init_direction(particles, key=key),
        flow.mover.init(particles),
        jnp.array(0),
    )
