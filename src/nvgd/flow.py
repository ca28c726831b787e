"""The whole algorithm: score, coordinates, direction, move."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from nvgd.coordinates import AbstractCoordinates
from nvgd.corrections import CorrectionState
from nvgd.directions import AbstractDirection, Diagnostics
from nvgd.errors import InputError, check_kind, plain
from nvgd.movers import AbstractMover
from nvgd.target import Target
from nvgd.views import Aim, View


class FlowState(NamedTuple):
    """What the next step needs."""

    particles: Float[Array, "n d"]
    coordinates: PyTree
    direction: PyTree
    mover: PyTree
    step: Int[Array, ""]
    corrections: PyTree = None
    """None in a run without them."""


class FlowInfo(NamedTuple):
    """What a person may want to see of a step."""

    log_density: Float[Array, ""]
    """Mean over the particles, before the move."""
    step_norm: Float[Array, ""]
    """Root mean square distance that a particle moved."""
    num_gradients: Int[Array, ""]
    """How many gradients of the log density the step evaluated: one a particle, if no part asks
    for more."""
    num_faulty_scores: Int[Array, ""]
    """Particles whose log density or score was not finite before the move, and not rescued."""
    num_faulty_moves: Int[Array, ""]
    """Particles that the move made non-finite."""
    diagnostics: Diagnostics
    """The direction's own: `stein_discrepancy`, `inner_steps`, `bandwidth`, where they exist."""


class ParticleFlow(eqx.Module):
    """Particles that follow the gradient flow of KL(q‖p), discretised (paper, eqs. 1 and 2).

    A step evaluates the score once a particle, expresses particles and scores in the coordinates,
    asks the direction for velocities, and lets the mover apply them:

        state = flow.init(target, particles, key=key)
        state, info = flow.step(target, state, key=key)

    The same key serves every step: the step number is folded in.
    """

    coordinates: AbstractCoordinates
    direction: AbstractDirection
    mover: AbstractMover
    corrected: bool = eqx.field(default=False, converter=plain)
    """Whether a run ends with `nvgd.corrections`, where log densities are known to compare."""

    def __check_init__(self):
        check_kind("coordinates", self.coordinates, AbstractCoordinates, "Identity()")
        check_kind("direction", self.direction, AbstractDirection, "NeuralDirection()")
        check_kind("mover", self.mover, AbstractMover, "Euler(1e-2)")
        if not isinstance(self.corrected, bool):
            raise InputError(f"corrected must be True or False, got {self.corrected!r}.")
        self.mover.check_parts(self.coordinates, self.direction)
        self.direction.check_coordinates(self.coordinates)

    def init(
        self, target: Target, particles: Float[Array, "n d"], *, key: PRNGKeyArray
    ) -> FlowState:
        """The state before the first step; checks that the parts fit each other."""
        if particles.ndim != 2 or particles.shape[1] != target.dim:
            raise InputError(
                f"particles must have shape (num_particles, {target.dim}), got {particles.shape}."
            )
        self.direction.check_target(target)
        self.mover.check_target(target)
        coordinates = self.coordinates
        is_noisy = target.batch_size is not None
        frames = (coordinates.init_for_minibatches if is_noisy else coordinates.init)(particles)
        return FlowState(
            particles,
            frames,
            self.direction.init(particles, key=key),
            self.mover.init(particles),
            jnp.array(0),
            CorrectionState.empty(coordinates, frames, particles)
            if self.corrects(target)
            else None,
        )

    def corrects(self, target: Target) -> bool:
        """Whether runs on this target end with corrections: not with minibatches."""
        return self.corrected and target.batch_size is None

    def for_run(self, num_steps: int) -> "ParticleFlow":
        """The flow for a run whose length is known: step sizes may fall towards its end."""
        parts = self.direction.for_run(num_steps), self.mover.for_run(num_steps)
        return eqx.tree_at(lambda flow: (flow.direction, flow.mover), self, parts)

    def step(
        self, target: Target, state: FlowState, batch: PyTree = None, *, key: PRNGKeyArray
    ) -> tuple[FlowState, FlowInfo]:
        """One step; `batch` holds the data rows to estimate the score from, all if omitted."""
        return self.move(state, self.aim(target, state, batch, key=key), key=key)

    def aim(
        self, target: Target, state: FlowState, batch: PyTree = None, *, key: PRNGKeyArray
    ) -> Aim:
        """The first half of a step: score, coordinates, direction."""
        particles = state.particles
        log_densities, scores = target.log_densities_and_scores(particles, batch)
        is_scored = jnp.isfinite(log_densities) & jnp.all(jnp.isfinite(scores), axis=-1)
        if self.mover.rescues:
            # They stand still until the mover has brought them back.
            scores = jnp.where(is_scored[:, None], scores, 0.0)
            log_densities = jnp.where(is_scored, log_densities, -jnp.inf)
        frame, coordinates_state = self.coordinates.fit(
            particles, scores, state.coordinates, step=state.step
        )
        expressed, expressed_scores = frame.express(particles, scores)
        view = View(target, frame, batch)
        direction_key, _ = self._keys(state, key)
        fit = self.direction.fit(
            expressed, expressed_scores, state.direction, view=view, key=direction_key
        )
        return Aim(expressed, log_densities, is_scored, fit, view, coordinates_state)

    def move(self, state: FlowState, aim: Aim, *, key: PRNGKeyArray) -> tuple[FlowState, FlowInfo]:
        """The second half of a step: the mover, and what a person may want to see."""
        _, move_key = self._keys(state, key)
        num_particles, dim = state.particles.shape
        field = aim.fit.field
        expressed, mover_state = self.mover(
            aim.particles,
            aim.fit.velocities,
            self.direction.noise_share,
            state.mover,
            log_densities=aim.log_densities,
            step=state.step,
            key=move_key,
            field=field,
            view=aim.view,
        )
        moved = aim.view.frame.restore(expressed)

        diagnostics = {**aim.fit.diagnostics, **self.mover.diagnostics(mover_state)}
        num_faulty = jnp.sum(~aim.is_scored)
        if self.mover.rescues:
            diagnostics = {**diagnostics, "num_rescued": num_faulty}
            # With more than half of them lost there is nothing to bring them back to.
            num_faulty = jnp.where(num_faulty <= num_particles // 2, 0, num_faulty)
        num_moved = num_particles if field is None else len(field.rows(num_particles))
        num_gradients = (
            num_particles
            + self.coordinates.extra_gradients(num_particles, dim)
            + self.direction.extra_gradients(num_particles)
            + self.mover.extra_gradients(num_moved)
        )
        is_moved = jnp.all(jnp.isfinite(moved), axis=-1)
        info = FlowInfo(
            log_density=jnp.mean(aim.log_densities, where=aim.is_scored),
            step_norm=jnp.sqrt(jnp.mean(jnp.sum((moved - state.particles) ** 2, axis=-1))),
            num_gradients=jnp.array(num_gradients),
            num_faulty_scores=num_faulty,
            num_faulty_moves=jnp.sum(~is_moved),
            diagnostics=diagnostics,
        )
        state = state._replace(
            particles=moved,
            coordinates=aim.coordinates_state,
            direction=aim.fit.state,
            mover=mover_state,
            step=state.step + 1,
        )
        return state, info

    def _keys(self, state: FlowState, key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray]:
        direction_key, move_key = jax.random.split(jax.random.fold_in(key, state.step))
        return direction_key, move_key
