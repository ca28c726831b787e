"""The state of the corrections' chains, and one step of it: propose, then accept or reject."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from nvgd._support.random_bits import random_numbers
from nvgd.exact.adaptation import Adapted, Snapshots
from nvgd.exact.jumps import NUM_UNIFORMS, Jumps
from nvgd.exact.local_steps import DEVIATION, log_ratio, log_roughness
from nvgd.exact.modes import Modes
from nvgd.flow.coordinates.base import AbstractFrame
from nvgd.targets.scores import Scores

# Rate at which momentum decays, per unit of step size.
FRICTION = 0.5
# Period of the jumps, in steps.
JUMP_EVERY = 10
# Steps of a common size and steps of local sizes alternate in blocks of this length.
BLOCK = 10
# Stream of a step's key.
PROPOSAL_STREAM = 0


class Proposal(NamedTuple):
    """Where the next step evaluates the target, and what it needs to accept or reject."""

    positions: Float[Array, "n d"]
    momenta: Float[Array, "n d"]
    """Refreshed momenta, at the start of the step."""
    midway: Float[Array, "n d"]
    """Momenta after the first half-step of the leapfrog integrator."""
    log_sizes: Float[Array, " n"]
    threshold: Float[Array, " n"]
    """The proposal is accepted if the log acceptance ratio exceeds this number."""
    is_local: Bool[Array, ""]
    is_jump: Bool[Array, ""]
    is_none: Bool[Array, ""]
    """Whether this is a placeholder, before the first step in a new frame."""
    shifted: tuple[Bool[Array, ""], Float[Array, " n"]] | None
    """Whether the jump is a shift, and the log factor of its acceptance; None without modes."""

    @classmethod
    def none(cls, particles: Float[Array, "n d"], *, has_modes: bool) -> "Proposal":
        """A placeholder that is never accepted."""
        zeros, column = jnp.zeros_like(particles), jnp.zeros_like(particles[:, 0])
        no, yes = jnp.array(False), jnp.array(True)
        shifted = (no, column) if has_modes else None
        return cls(particles, zeros, zeros, column, column + jnp.inf, no, no, yes, shifted)


class CorrectionState(NamedTuple):
    """State of the chains, with the frame and the jumps that are adapted to them."""

    particles: Float[Array, "n d"]
    step: Int[Array, ""]
    log_densities: Float[Array, " n"]
    scores: Float[Array, "n d"]
    expressed: Float[Array, "n d"]
    """The particles in the frame's coordinates."""
    expressed_scores: Float[Array, "n d"]
    """Their scores in these coordinates."""
    log_volumes: Float[Array, " n"]
    """Log determinants of the frame at the particles."""
    momenta: Float[Array, "n d"]
    """Momenta in the frame's coordinates."""
    num_rejections: Int[Array, " n"]
    """Number of consecutive rejections up to now."""
    past: Snapshots | None
    """Earlier states, to which coordinates are fitted, too; None if the current ones are enough."""
    log_size: Float[Array, ""]
    """Log of the ensemble's step size ε."""
    frame: AbstractFrame
    jumps: Jumps
    """The density of jumps, in the frame's coordinates."""
    proposal: Proposal
    acceptance: Float[Array, ""]
    """Mean acceptance probability of the last leapfrog step; 1 before the first."""
    jump_acceptance: Float[Array, ""]
    """Mean acceptance probability of the last jump; 0 before the first jump."""


def start(
    particles: Float[Array, "n d"],
    found: Scores,
    adapted: Adapted,
    num_rejections: Int[Array, " n"],
    past: Snapshots | None,
    step: Int[Array, ""],
    log_size: Float[Array, ""],
    *,
    has_modes: bool,
) -> CorrectionState:
    """Chains in a new frame, with stray and stuck particles replaced, before their first proposal.

    Arguments:
        found: finite log densities and scores of the particles.
        num_rejections: number of consecutive rejections of each particle.
        past: earlier states of the chains.
        step: number of steps taken.
        log_size: log of the step size ε.
        has_modes: whether proposals include shifts between modes.
    """
    frame, jumps, source = adapted
    particles, scores = particles[source], found.scores[source]
    expressed, expressed_scores = frame.express(particles, scores)
    return CorrectionState(
        particles=particles,
        step=step,
        log_densities=found.log_densities[source],
        scores=scores,
        expressed=expressed,
        expressed_scores=expressed_scores,
        log_volumes=frame.log_volumes(expressed),
        momenta=jnp.zeros_like(particles),
        num_rejections=num_rejections[source],
        past=past,
        log_size=log_size,
        frame=frame,
        jumps=jumps,
        proposal=Proposal.none(particles, has_modes=has_modes),
        acceptance=jnp.ones_like(log_size),
        jump_acceptance=jnp.zeros_like(log_size),
    )


def propose(
    state: CorrectionState, number: Int[Array, ""], key: PRNGKeyArray, modes: Modes | None = None
) -> Proposal:
    """A leapfrog step with refreshed momenta, or a jump; in a new frame, momenta are drawn anew.

    Arguments:
        number: number of corrections so far.
        modes: separate modes, if there are any; then every second jump is a shift between them.
    """
    key = jax.random.fold_in(key, state.step)
    here, scores, is_new_frame = state.expressed, state.expressed_scores, state.proposal.is_none
    num_particles, dim = here.shape
    num_uniforms = 1 + NUM_UNIFORMS
    noise, uniforms = random_numbers(
        key, num_particles, dim + 1, num_uniforms, here.dtype, PROPOSAL_STREAM
    )
    noise, size_noise = noise[:, :dim], noise[:, dim]
    is_jump = (number % JUMP_EVERY == JUMP_EVERY - 1) & ~is_new_frame
    is_local = (number // BLOCK) % 2 == 1
    local = DEVIATION * size_noise - log_roughness(scores)
    log_sizes = state.log_size + jnp.where(is_local, local, 0.0)
    sizes = jnp.exp(log_sizes)[:, None]
    kept = jnp.exp(-FRICTION * sizes)
    momenta = kept * state.momenta + jnp.sqrt(1 - kept**2) * noise
    # A jump leaves the momenta alone, so that its noise is used once.
    momenta = jnp.where(is_new_frame, noise, jnp.where(is_jump, state.momenta, momenta))
    midway = momenta + 0.5 * sizes * scores
    there = jnp.where(is_jump, state.jumps.draw(noise, uniforms[:, 1:]), here + sizes * midway)
    positions, shifted = state.frame.restore(there), None
    if modes is not None:
        places, log_factors = modes.shift(state.particles, uniforms[:, 1])
        is_shift = is_jump & ((number // JUMP_EVERY) % 2 == 0)
        positions = jnp.where(is_shift, places, positions)
        shifted = is_shift, log_factors
    return Proposal(
        positions,
        momenta,
        midway,
        log_sizes,
        jnp.log(uniforms[:, 0]),
        is_local,
        is_jump,
        jnp.array(False),
        shifted,
    )


def decide(state: CorrectionState, found: Scores) -> tuple[CorrectionState, Float[Array, ""]]:
    """The chains after acceptance or rejection, and the mean acceptance probability."""
    proposal, here, is_jump = state.proposal, state.expressed, state.proposal.is_jump
    there, scores = state.frame.express(proposal.positions, found.scores)
    volumes = state.frame.log_volumes(there)
    sizes = jnp.exp(proposal.log_sizes)[:, None]
    momenta = proposal.midway + 0.5 * sizes * scores
    gain = rise = found.log_densities - state.log_densities
    gain += volumes - state.log_volumes
    local = log_ratio(proposal.log_sizes, state.log_size, state.expressed_scores, scores)
    leapt = 0.5 * jnp.sum(proposal.momenta**2 - momenta**2, axis=1)
    leapt += jnp.where(proposal.is_local, local, 0.0)
    gain += jax.lax.cond(
        is_jump,
        lambda: state.jumps.log_densities(here) - state.jumps.log_densities(there),
        lambda: leapt,
    )
    if proposal.shifted is not None:
        is_shift, log_factors = proposal.shifted
        gain = jnp.where(is_shift, rise + log_factors, gain)
    # NaN: the log density is finite at neither position, or the step diverged.
    gain = jnp.where(jnp.isnan(gain), -jnp.inf, gain)
    is_accepted = proposal.threshold < gain
    rows = is_accepted[:, None]
    state = state._replace(
        particles=jnp.where(rows, proposal.positions, state.particles),
        log_densities=jnp.where(is_accepted, found.log_densities, state.log_densities),
        scores=jnp.where(rows, found.scores, state.scores),
        expressed=jnp.where(rows, there, here),
        expressed_scores=jnp.where(rows, scores, state.expressed_scores),
        log_volumes=jnp.where(is_accepted, volumes, state.log_volumes),
        momenta=jnp.where(is_jump, proposal.momenta, jnp.where(rows, momenta, -proposal.momenta)),
        num_rejections=jnp.where(is_accepted, 0, state.num_rejections + ~proposal.is_none),
    )
    chance = jnp.mean(jnp.exp(jnp.minimum(gain, 0.0)))
    return state, chance.astype(there.dtype)
