"""Corrections: steps that are accepted or rejected, and so keep the target exactly.

A learned field is biased where the target is harder than the coordinates and the network can tell.
Particles that have come near the target are good starting points of chains, and their spread is the
preconditioner that chains otherwise spend long on: what is left of the bias is soon forgotten.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from nvgd._support.compilation import compiled
from nvgd._support.particle_groups import even_selection
from nvgd.exact import jumps
from nvgd.exact.final_choice import flow_unless_wrong
from nvgd.flow.coordinates.base import AbstractCoordinates, AbstractFrame
from nvgd.flow.stage import (
    AbstractStage,
    StepInfo,
    num_non_finite,
    root_mean_square_distance,
    step_keys,
)
from nvgd.targets.scores import Scores
from nvgd.targets.target import Target, evaluate

# Momentum is forgotten at this rate, in units of the particles' own spread.
FRICTION = 0.5
# A step is one of these multiples of the ensemble's step size, at random: stiff places need small
# ones.
MULTIPLES = (1.0, 0.7, 0.3)
# Every so many steps a jump is tried instead.
JUMP_EVERY = 10
# During the first quarter, uphill jumps from particles beyond STRANDED·√d have their log acceptance
# ratio multiplied by LENIENCE. Biased, hence burn-in only; it frees stranded particles.
LENIENCE = 0.3
STRANDED = 3.0
# The share of moves to accept, and how fast the step size follows it.
ACCEPTANCE = 0.7
ADAPTATION = 0.1
# Times that coordinates are fitted anew over the first half; from then on nothing adapts.
NUM_FITS = 10
# Particles further from the centre than FARTHEST + 2√d, in units of the spread, are strays.
FARTHEST = 10.0
# Particles that have been rejected this many times in a row are stuck.
MOST_REJECTIONS = 100
# Where the chains were at so many moments of the second half is kept for the final choice.
NUM_SNAPSHOTS = 8


class CorrectionState(NamedTuple):
    """The chains, and what adapts to them."""

    particles: Float[Array, "n d"]
    step: Int[Array, ""]
    log_densities: Float[Array, " n"]
    scores: Float[Array, "n d"]
    momenta: Float[Array, "n d"]
    """In the frame's coordinates."""
    num_rejections: Int[Array, " n"]
    """In a row, until now."""
    frame: AbstractFrame
    is_new_frame: Bool[Array, ""]
    """Whether the frame was fitted at the end of the last step: momenta are drawn afresh then."""
    log_size: Float[Array, ""]
    before: Float[Array, "n d"]
    """Where the stage before left the particles."""
    is_sound: Bool[Array, ""]
    """Whether the log density was finite at all of them."""
    snapshots: Float[Array, "k m d"]
    acceptance: Float[Array, ""]
    """Mean probability of acceptance of the last step that was no jump."""
    jump_acceptance: Float[Array, ""]
    """The same of the last jump; 0 before the first."""


class _Proposal(NamedTuple):
    positions: Float[Array, "n d"]
    momenta: Float[Array, "n d"]
    """Refreshed, at the start of the step."""
    midway: Float[Array, "n d"]
    """Half a step before the proposed positions."""
    sizes: Float[Array, "n 1"]
    is_jump: Bool[Array, ""]


class Corrections(AbstractStage):
    """Generalised Hamiltonian Monte Carlo on all particles, in coordinates that fit them.

        r ← αr + √(1 − α²) ξ,   one leapfrog step (u, r) → (u', r') of size ε,
        accepted with probability min(1, p(u')N(r')/p(u)N(r)); if not, r ← −r       (α = e^(−ε/2))

    after Horowitz ("A generalized guided Monte Carlo algorithm", 1991), with an ensemble to tune it
    as in Hoffman and Sountsov ("Tuning-free generalized Hamiltonian Monte Carlo", 2022): u are the
    coordinates in which the particles have unit spread, ε is such that .7 of the moves are
    accepted. Both adapt over the first half of the corrections only. One gradient per step.

    Every tenth step is a jump instead: u' is drawn from a Student-t density g about the particles'
    centre and accepted with probability min(1, p(u')g(u)/p(u)g(u')), whatever the momentum
    (Tierney, "Markov chains for exploring posterior distributions", 1994). Jumps bring home
    particles that are stranded where steps are too small for the way back, and carry particles
    between separate modes. During the first quarter, long before what is kept, the probability of
    a jump uphill from far away is raised to the power .3.

    At the end the flow's particles x and the chains' y are both compared with where the chains were
    at eight moments of the second half: if x is nearer in energy distance, has no strays, and yᵢ is
    no longer correlated with xᵢ, x is handed over (`final_choice`); otherwise y is.

    Arguments:
        coordinates: the flow's, and
        memory: their state at the end of the flow, such as the driver that was found.
        first_step: the step of the run at which the corrections begin.
        num_steps: how many there are.
    """

    coordinates: AbstractCoordinates
    memory: PyTree
    first_step: Int[Array, ""] = eqx.field(converter=jnp.asarray)
    num_steps: Int[Array, ""] = eqx.field(converter=jnp.asarray)

    @property
    def _span(self) -> Int[Array, ""]:
        """Evaluations of the log density per particle: one in `init`, one in each step."""
        return self.num_steps + 1

    def init_gradients(self, num_particles):
        """One per particle."""
        return num_particles

    def init(
        self, target: Target, particles: Float[Array, "n d"], *, key: PRNGKeyArray
    ) -> CorrectionState:
        """Evaluate the particles, fit the frame, and bring strays home."""
        return _begun(self, particles, evaluate(target, particles, None), key)

    def step(
        self,
        target: Target,
        state: CorrectionState,
        batch: PyTree = None,
        *,
        key: PRNGKeyArray,
    ) -> tuple[CorrectionState, StepInfo]:
        """Refresh the momenta, propose, evaluate once, accept or reject; then adapt."""
        del batch
        # The proposal's key belongs to the state it leaves, the others to the state it reaches.
        proposal_key = step_keys(key, state.step, 3)[2]
        decision_key, stray_key, _ = step_keys(key, state.step + 1, 3)
        number = state.step + 1 - self.first_step
        is_adapting = 2 * number < self._span
        proposal = _propose(state, (number - 1) % JUMP_EVERY == JUMP_EVERY - 1, proposal_key)
        found = target.log_densities_and_scores(proposal.positions).masked()
        moved, chance = _decide(state, proposal, found, 4 * number < self._span, decision_key)
        is_jump = proposal.is_jump
        change = jnp.where(is_adapting & ~is_jump, ADAPTATION * (chance - ACCEPTANCE), 0.0)
        every = jnp.maximum(self._span // (2 * NUM_FITS), 1)
        is_due = is_adapting & (number % every == 0)
        moved = moved._replace(
            step=state.step + 1,
            is_new_frame=is_due,
            log_size=moved.log_size + change,
            acceptance=jnp.where(is_jump, state.acceptance, chance),
            jump_acceptance=jnp.where(is_jump, chance, state.jump_acceptance),
        )
        moved = jax.lax.cond(is_due, lambda: self._refitted(moved, stray_key), lambda: moved)
        slot, last_slot = (
            2 * NUM_SNAPSHOTS * at // self._span - NUM_SNAPSHOTS for at in (number, number - 1)
        )
        kept = jnp.where((slot >= 0) & (slot > last_slot), slot, NUM_SNAPSHOTS)
        selected = even_selection(moved.particles)
        moved = moved._replace(snapshots=moved.snapshots.at[kept].set(selected, mode="drop"))
        info = StepInfo(
            log_density=jnp.mean(moved.log_densities, where=jnp.isfinite(moved.log_densities)),
            step_norm=root_mean_square_distance(moved.particles, state.particles),
            num_gradients=jnp.array(len(moved.particles)),
            num_faulty_scores=jnp.array(0),
            num_faulty_moves=num_non_finite(moved.particles),
            diagnostics={
                "acceptance": moved.acceptance,
                "jump_acceptance": moved.jump_acceptance,
            },
        )
        return moved, info

    def finish(self, target: Target, state: CorrectionState) -> Float[Array, "n d"]:
        """The flow's particles if they are good, the chains' otherwise."""
        del target
        if not bool(state.is_sound):
            return state.particles
        return flow_unless_wrong(state.before, state.particles, state.snapshots)

    def _refitted(self, state: CorrectionState, key: PRNGKeyArray) -> CorrectionState:
        frame = self.coordinates.settled(state.particles, state.scores, self.memory)
        return _without_strays(state._replace(frame=frame), key)


@compiled
def _begun(
    stage: Corrections, particles: Float[Array, "n d"], found: Scores, key: PRNGKeyArray
) -> CorrectionState:
    is_sound = jnp.all(found.is_finite)
    found = found.masked()
    num_particles, dim = particles.shape
    selected = even_selection(particles)
    zero = jnp.zeros((), particles.dtype)
    state = CorrectionState(
        particles=particles,
        step=stage.first_step,
        log_densities=found.log_densities,
        scores=found.scores,
        momenta=jnp.zeros_like(particles),
        num_rejections=jnp.zeros(num_particles, int),
        frame=stage.coordinates.settled(particles, found.scores, stage.memory),
        is_new_frame=jnp.array(True),
        log_size=jnp.log(jnp.asarray(0.5 * dim**-0.25, particles.dtype)),
        before=particles,
        is_sound=is_sound,
        snapshots=jnp.broadcast_to(selected, (NUM_SNAPSHOTS, *selected.shape)),
        acceptance=zero,
        jump_acceptance=zero,
    )
    return _without_strays(state, step_keys(key, stage.first_step, 3)[1])


def _propose(state: CorrectionState, is_jump: Bool[Array, ""], key: PRNGKeyArray) -> _Proposal:
    """Refreshed momenta, and a leapfrog step or a jump from them."""
    particles = state.particles
    noise_key, size_key = jax.random.split(key)
    multiples = jnp.asarray(MULTIPLES, particles.dtype)
    chosen = jax.random.randint(size_key, (len(particles), 1), 0, len(MULTIPLES))
    sizes = jnp.exp(state.log_size) * multiples[chosen]
    kept = jnp.exp(-FRICTION * sizes)
    noise = jax.random.normal(noise_key, particles.shape, particles.dtype)
    momenta = kept * state.momenta + jnp.sqrt(1 - kept**2) * noise
    # In new coordinates old momenta mean nothing.
    momenta = jnp.where(state.is_new_frame, noise, momenta)
    expressed, expressed_scores = state.frame.express(particles, state.scores)
    midway = momenta + 0.5 * sizes * expressed_scores
    there = jnp.where(
        is_jump, jumps.draw(jax.random.fold_in(key, 1), particles), expressed + sizes * midway
    )
    return _Proposal(state.frame.restore(there), momenta, midway, sizes, is_jump)


def _decide(
    state: CorrectionState,
    proposal: _Proposal,
    found: Scores,
    is_lenient: Bool[Array, ""],
    key: PRNGKeyArray,
) -> tuple[CorrectionState, Float[Array, ""]]:
    """The chains after acceptance or rejection, and the mean probability of acceptance."""
    there, is_jump, frame = proposal.positions, proposal.is_jump, state.frame
    expressed, expressed_scores = frame.express(there, found.scores)
    momenta = proposal.midway + 0.5 * proposal.sizes * expressed_scores
    here, _ = frame.express(state.particles, state.scores)
    rise = found.log_densities - state.log_densities
    rise += frame.log_volumes(expressed) - frame.log_volumes(here)
    gain = rise + jnp.where(
        is_jump,
        jumps.log_densities(here) - jumps.log_densities(expressed),
        0.5 * jnp.sum(proposal.momenta**2 - momenta**2, axis=1),
    )
    is_stranded = jnp.sum(here**2, axis=1) > STRANDED**2 * here.shape[1]
    gain *= jnp.where(is_jump & is_lenient & is_stranded & (rise > 0), LENIENCE, 1.0)
    # Not a number: the log density is finite neither here nor there, or the step went too far.
    gain = jnp.where(jnp.isnan(gain), -jnp.inf, gain)
    threshold = jnp.log(jax.random.uniform(key, gain.shape, gain.dtype))
    is_accepted = threshold < gain
    rows = is_accepted[:, None]
    state = state._replace(
        particles=jnp.where(rows, there, state.particles),
        log_densities=jnp.where(is_accepted, found.log_densities, state.log_densities),
        scores=jnp.where(rows, found.scores, state.scores),
        momenta=jnp.where(is_jump, proposal.momenta, jnp.where(rows, momenta, -proposal.momenta)),
        num_rejections=jnp.where(is_accepted, 0, state.num_rejections + 1),
    )
    chance = jnp.mean(jnp.exp(jnp.minimum(gain, 0.0)))
    return state, chance.astype(there.dtype)


def _without_strays(state: CorrectionState, key: PRNGKeyArray) -> CorrectionState:
    """Replace stray, stuck or zero-density particles by copies of random healthy ones.

    They lie in flat or narrow places that the flow should not have brought them to, or outside of
    the support, and would take too long on their way back.
    """
    expressed, _ = state.frame.express(state.particles, state.scores)
    num_particles, dim = expressed.shape
    is_stray = jnp.linalg.norm(expressed, axis=1) > FARTHEST + 2 * dim**0.5
    is_stray |= state.num_rejections >= MOST_REJECTIONS
    is_stray |= jnp.isneginf(state.log_densities)
    others = jax.random.randint(key, is_stray.shape, 0, num_particles)
    chosen = jnp.where(is_stray & ~is_stray[others], others, jnp.arange(num_particles))
    return state._replace(
        particles=state.particles[chosen],
        log_densities=state.log_densities[chosen],
        scores=state.scores[chosen],
        num_rejections=state.num_rejections[chosen],
    )
