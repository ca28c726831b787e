"""Corrections: Metropolis-adjusted steps, which leave the target invariant.

A learned field is biased where coordinates and network cannot represent the target. Particles near
the target are good starting points for Markov chains, and their spread is the preconditioner that
chains otherwise need a long warm-up to find. The chains soon forget the remaining bias.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from nvgd._support.compilation import quickly_compiled
from nvgd._support.particle_groups import even_selection
from nvgd._support.random_bits import random_indices, random_numbers
from nvgd.exact import jumps
from nvgd.exact.final_choice import flow_unless_wrong
from nvgd.flow.coordinates.base import AbstractCoordinates, AbstractFrame
from nvgd.flow.stage import (
    AbstractStage,
    StepInfo,
    num_non_finite,
    root_mean_square_distance,
)
from nvgd.targets.scores import Scores
from nvgd.targets.target import Target, evaluate

# Rate at which momentum decays, per unit of step size.
FRICTION = 0.5
# Each step is the ensemble's step size times one of these factors, chosen at random: stiff regions
# need small steps.
MULTIPLES = (1.0, 0.7, 0.3)
# Period of the jumps, in steps.
JUMP_EVERY = 10
# During the first quarter, uphill jumps from particles beyond STRANDED·√d have their log acceptance
# ratio multiplied by LENIENCE. Biased, hence burn-in only; it frees stranded particles.
LENIENCE = 0.3
STRANDED = 3.0
# Target acceptance rate, and the rate at which the step size adapts to it.
ACCEPTANCE = 0.7
ADAPTATION = 0.1
# Number of coordinate fits over the first half; in the second half nothing adapts.
NUM_FITS = 10
# Particles farther from the centre than FARTHEST + 2√d, in units of the spread, are strays.
FARTHEST = 10.0
# Particles that have been rejected this many times in a row are stuck.
MOST_REJECTIONS = 100
# Number of states of the second half that are kept for the final choice.
NUM_SNAPSHOTS = 8
# Streams of a step's key.
PROPOSAL_STREAM, STRAY_STREAM = 0, 1


class Proposal(NamedTuple):
    """Where the next step evaluates the target, and what it needs to accept or reject."""

    positions: Float[Array, "n d"]
    here: Float[Array, "n d"]
    """The particles in the frame's coordinates."""
    momenta: Float[Array, "n d"]
    """Refreshed momenta, at the start of the step."""
    midway: Float[Array, "n d"]
    """Momenta after the first half-step of the leapfrog integrator."""
    sizes: Float[Array, "n 1"]
    threshold: Float[Array, " n"]
    """The proposal is accepted if the log acceptance ratio exceeds this number."""
    is_jump: Bool[Array, ""]

    @classmethod
    def none(cls, particles: Float[Array, "n d"]) -> "Proposal":
        """A placeholder of the right shapes."""
        column = particles[:, :1]
        rows = particles, particles, particles, particles
        return cls(*rows, column, column[:, 0], jnp.array(False))


class CorrectionState(NamedTuple):
    """State of the chains, with the adapted frame and step size."""

    particles: Float[Array, "n d"]
    step: Int[Array, ""]
    log_densities: Float[Array, " n"]
    scores: Float[Array, "n d"]
    momenta: Float[Array, "n d"]
    """Momenta in the frame's coordinates."""
    num_rejections: Int[Array, " n"]
    """Number of consecutive rejections up to now."""
    frame: AbstractFrame
    proposal: Proposal
    log_size: Float[Array, ""]
    """Log of the ensemble's step size ε."""
    before: Float[Array, "n d"]
    """Particles at the end of the previous stage."""
    is_sound: Bool[Array, ""]
    """Whether log density and score were finite at all particles of the previous stage."""
    snapshots: Float[Array, "k m d"]
    """Earlier states of the chains, for the final choice."""
    acceptance: Float[Array, ""]
    """Mean acceptance probability of the last leapfrog step."""
    jump_acceptance: Float[Array, ""]
    """Mean acceptance probability of the last jump; 0 before the first jump."""


class Corrections(AbstractStage):
    """Generalised Hamiltonian Monte Carlo on all particles, in coordinates fitted to them.

        r ← αr + √(1 − α²) ξ,   one leapfrog step (u, r) → (u', r') of size ε,
        accepted with probability min(1, p(u')N(r')/p(u)N(r)); if not, r ← −r       (α = e^(−ε/2))

    After Horowitz ("A generalized guided Monte Carlo algorithm", 1991), tuned by the ensemble as in
    Hoffman and Sountsov ("Tuning-free generalized Hamiltonian Monte Carlo", 2022): u are
    coordinates in which the particles have unit spread, and ε is such that .7 of the moves are
    accepted. Both adapt over the first half of the corrections only. One gradient per particle and
    step.

    Every tenth step is a jump instead: u' is drawn from a Student-t density g around the particles'
    centre and accepted with probability min(1, p(u')g(u)/p(u)g(u')), independently of the momentum
    (Tierney, "Markov chains for exploring posterior distributions", 1994). Jumps bring back
    particles that are stranded where steps are too small, and carry particles between separate
    modes. During the first quarter, which is burn-in, the acceptance ratio of uphill jumps from far
    away is raised to the power .3.

    At the end, the flow's particles x and the chains' final states y are compared with eight
    snapshots of the chains from the second half. The stage returns x if x is nearer to the
    snapshots in energy distance, has no strays, and yᵢ is no longer correlated with xᵢ; otherwise
    it returns y (`final_choice`).

    Arguments:
        coordinates: the coordinates of the flow.
        memory: the state of the coordinates at the end of the flow, such as the driver found.
        first_step: the step of the run at which the corrections begin.
        num_steps: number of corrections.
    """

    coordinates: AbstractCoordinates
    memory: PyTree
    first_step: Int[Array, ""] = eqx.field(converter=jnp.asarray)
    num_steps: Int[Array, ""] = eqx.field(converter=jnp.asarray)

    @property
    def _span(self) -> Int[Array, ""]:
        """Number of evaluations of the log density per particle: one in `init`, one per step."""
        return self.num_steps + 1

    def init_gradients(self, num_particles):
        """One gradient per particle."""
        return num_particles

    def init(
        self, target: Target, particles: Float[Array, "n d"], *, key: PRNGKeyArray
    ) -> CorrectionState:
        """Evaluate the particles, fit the frame, replace strays, and make the first proposal."""
        return _begun(self, particles, evaluate(target, particles), key)

    def positions(self, state):
        """The proposals."""
        return state.proposal.positions

    def update(self, state, found, view, *, key):
        """Accept or reject the proposals, adapt, and make the next proposals."""
        del view
        key = jax.random.fold_in(key, state.step + 1)
        number = state.step + 1 - self.first_step
        is_adapting = 2 * number < self._span
        found = found.masked()
        moved, chance = _decide(state, found, 4 * number < self._span)
        is_jump = state.proposal.is_jump
        change = jnp.where(is_adapting & ~is_jump, ADAPTATION * (chance - ACCEPTANCE), 0.0)
        every = jnp.maximum(self._span // (2 * NUM_FITS), 1)
        is_due = is_adapting & (number % every == 0)
        moved = moved._replace(
            step=state.step + 1,
            log_size=moved.log_size + change,
            acceptance=jnp.where(is_jump, state.acceptance, chance),
            jump_acceptance=jnp.where(is_jump, chance, state.jump_acceptance),
        )
        moved = jax.lax.cond(is_due, lambda: self._refitted(moved, key), lambda: moved)
        slot, last_slot = (
            2 * NUM_SNAPSHOTS * at // self._span - NUM_SNAPSHOTS for at in (number, number - 1)
        )
        kept = jnp.where((slot >= 0) & (slot > last_slot), slot, NUM_SNAPSHOTS)
        selected = even_selection(moved.particles)
        moved = moved._replace(
            snapshots=moved.snapshots.at[kept].set(selected, mode="drop"),
            proposal=propose(moved, number % JUMP_EVERY == JUMP_EVERY - 1, is_due, key),
        )
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
        """The flow's particles if they agree with the chains, the chains' states otherwise."""
        del target
        if not bool(state.is_sound):
            return state.particles
        return flow_unless_wrong(state.before, state.particles, state.snapshots)

    def _refitted(self, state: CorrectionState, key: PRNGKeyArray) -> CorrectionState:
        frame = self.coordinates.settled(state.particles, state.scores, self.memory)
        return _without_strays(state._replace(frame=frame), key)


@quickly_compiled
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
        proposal=Proposal.none(particles),
        log_size=jnp.log(jnp.asarray(0.5 * dim**-0.25, particles.dtype)),
        before=particles,
        is_sound=is_sound,
        snapshots=jnp.broadcast_to(selected, (NUM_SNAPSHOTS, *selected.shape)),
        acceptance=zero,
        jump_acceptance=zero,
    )
    key = jax.random.fold_in(key, stage.first_step)
    state = _without_strays(state, key)
    return state._replace(proposal=propose(state, jnp.array(False), jnp.array(True), key))


def propose(
    state: CorrectionState,
    is_jump: Bool[Array, ""],
    is_new_frame: Bool[Array, ""],
    key: PRNGKeyArray,
) -> Proposal:
    """A leapfrog step with refreshed momenta, or a jump."""
    particles = state.particles
    num_particles, dim = particles.shape
    # Momenta do not carry over to a new frame, where the first proposal is not a jump.
    is_jump = is_jump & ~is_new_frame
    noise, uniforms = random_numbers(key, num_particles, dim, 4, particles.dtype, PROPOSAL_STREAM)
    multiples = jnp.asarray(MULTIPLES, particles.dtype)
    sizes = jnp.exp(state.log_size) * multiples[(uniforms[:, :1] * len(MULTIPLES)).astype(int)]
    kept = jnp.where(is_new_frame, 0.0, jnp.exp(-FRICTION * sizes))
    momenta = kept * state.momenta + jnp.sqrt(1 - kept**2) * noise
    # A jump leaves the momenta alone, so that its noise is used once.
    momenta = jnp.where(is_jump, state.momenta, momenta)
    expressed, expressed_scores = state.frame.express(particles, state.scores)
    midway = momenta + 0.5 * sizes * expressed_scores
    there = jnp.where(is_jump, jumps.draw(noise, uniforms[:, 1:3]), expressed + sizes * midway)
    threshold = jnp.log(uniforms[:, 3])
    return Proposal(
        state.frame.restore(there), expressed, momenta, midway, sizes, threshold, is_jump
    )


def _decide(
    state: CorrectionState, found: Scores, is_lenient: Bool[Array, ""]
) -> tuple[CorrectionState, Float[Array, ""]]:
    """The chains after acceptance or rejection, and the mean acceptance probability."""
    proposal = state.proposal
    there, is_jump, frame = proposal.positions, proposal.is_jump, state.frame
    expressed, expressed_scores = frame.express(there, found.scores)
    momenta = proposal.midway + 0.5 * proposal.sizes * expressed_scores
    here = proposal.here
    rise = found.log_densities - state.log_densities
    rise += frame.log_volumes(expressed) - frame.log_volumes(here)
    gain = rise + jnp.where(
        is_jump,
        jumps.log_densities(here) - jumps.log_densities(expressed),
        0.5 * jnp.sum(proposal.momenta**2 - momenta**2, axis=1),
    )
    is_stranded = jnp.sum(here**2, axis=1) > STRANDED**2 * here.shape[1]
    gain *= jnp.where(is_jump & is_lenient & is_stranded & (rise > 0), LENIENCE, 1.0)
    # NaN: the log density is finite at neither position, or the step diverged.
    gain = jnp.where(jnp.isnan(gain), -jnp.inf, gain)
    is_accepted = proposal.threshold < gain
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

    Such particles lie in flat or narrow regions, or outside the support, from which chains would
    take too long to return.
    """
    expressed, _ = state.frame.express(state.particles, state.scores)
    num_particles, dim = expressed.shape
    is_stray = jnp.linalg.norm(expressed, axis=1) > FARTHEST + 2 * dim**0.5
    is_stray |= state.num_rejections >= MOST_REJECTIONS
    is_stray |= jnp.isneginf(state.log_densities)
    others = random_indices(key, is_stray.shape, num_particles, STRAY_STREAM)
    chosen = jnp.where(is_stray & ~is_stray[others], others, jnp.arange(num_particles))
    return state._replace(
        particles=state.particles[chosen],
        log_densities=state.log_densities[chosen],
        scores=state.scores[chosen],
        num_rejections=state.num_rejections[chosen],
    )
