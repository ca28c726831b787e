"""The state of the corrections' chains, and one step of it: propose, then accept or reject."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from nvgd._support.random_bits import random_numbers
from nvgd.exact.adaptation import Adapted
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
    here: Float[Array, "n d"]
    """The particles in the frame's coordinates."""
    scores: Float[Array, "n d"]
    """Their scores in these coordinates."""
    momenta: Float[Array, "n d"]
    """Refreshed momenta, at the start of the step."""
    midway: Float[Array, "n d"]
    """Momenta after the first half-step of the leapfrog integrator."""
    log_sizes: Float[Array, " n"]
    threshold: Float[Array, " n"]
    """The proposal is accepted if the log acceptance ratio exceeds this number."""
    is_local: Bool[Array, ""]
    is_jump: Bool[Array, ""]
    shifted: tuple[Bool[Array, ""], Float[Array, " n"]] | None = None
    """Whether the jump is a shift, and the log factor of its acceptance; None without modes."""

    @classmethod
    def none(cls, particles: Float[Array, "n d"]) -> "Proposal":
        """A placeholder of the right shapes."""
        column, no = particles[:, 0], jnp.array(False)
        rows = particles, particles, particles, particles, particles
        return cls(*rows, column, column, no, no)


class CorrectionState(NamedTuple):
    """State of the chains, with what is adapted to them."""

    particles: Float[Array, "n d"]
    step: Int[Array, ""]
    log_densities: Float[Array, " n"]
    scores: Float[Array, "n d"]
    momenta: Float[Array, "n d"]
    """Momenta in the frame's coordinates."""
    num_rejections: Int[Array, " n"]
    """Number of consecutive rejections up to now."""
    log_size: Float[Array, ""]
    """Log of the ensemble's step size ε."""
    frame: AbstractFrame
    """The coordinates of the proposal."""
    jumps: Jumps
    """The density of jumps, in these coordinates."""
    proposal: Proposal
    adapted: Adapted
    """Coordinates and jumps of the next proposal."""
    acceptance: Float[Array, ""]
    """Mean acceptance probability of the last leapfrog step."""
    jump_acceptance: Float[Array, ""]
    """Mean acceptance probability of the last jump; 0 before the first jump."""


def adopt(state: CorrectionState) -> CorrectionState:
    """Use what was adapted for the next proposal, and replace stray and stuck particles."""
    adapted = state.adapted
    own = jnp.arange(len(state.particles))
    source = jnp.where(adapted.is_new, adapted.source, own)
    return state._replace(
        particles=state.particles[source],
        log_densities=state.log_densities[source],
        scores=state.scores[source],
        num_rejections=state.num_rejections[source],
        frame=adapted.frame,
        jumps=adapted.jumps,
        adapted=adapted._replace(is_new=jnp.array(False)),
    )


def propose(
    state: CorrectionState,
    number: Int[Array, ""],
    is_new_frame: Bool[Array, ""],
    key: PRNGKeyArray,
    modes: Modes | None = None,
) -> Proposal:
    """A leapfrog step with refreshed momenta, or a jump.

    Arguments:
        number: number of corrections so far.
        is_new_frame: whether the momenta belong to an earlier frame, so that they are drawn anew.
        modes: separate modes, if there are any; then every second jump is a shift between them.
    """
    key = jax.random.fold_in(key, state.step)
    particles = state.particles
    num_particles, dim = particles.shape
    num_uniforms = 1 + NUM_UNIFORMS
    noise, uniforms = random_numbers(
        key, num_particles, dim + 1, num_uniforms, particles.dtype, PROPOSAL_STREAM
    )
    noise, size_noise = noise[:, :dim], noise[:, dim]
    is_jump = (number % JUMP_EVERY == JUMP_EVERY - 1) & ~is_new_frame
    is_local = (number // BLOCK) % 2 == 1
    here, scores = state.frame.express(particles, state.scores)
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
        places, log_factors = modes.shift(particles, uniforms[:, 1])
        is_shift = is_jump & ((number // JUMP_EVERY) % 2 == 0)
        positions = jnp.where(is_shift, places, positions)
        shifted = is_shift, log_factors
    return Proposal(
        positions,
        here,
        scores,
        momenta,
        midway,
        log_sizes,
        jnp.log(uniforms[:, 0]),
        is_local,
        is_jump,
        shifted,
    )


def decide(state: CorrectionState, found: Scores) -> tuple[CorrectionState, Float[Array, ""]]:
    """The chains after acceptance or rejection, and the mean acceptance probability."""
    proposal, frame = state.proposal, state.frame
    here, is_jump = proposal.here, proposal.is_jump
    there, scores = frame.express(proposal.positions, found.scores)
    sizes = jnp.exp(proposal.log_sizes)[:, None]
    momenta = proposal.midway + 0.5 * sizes * scores
    gain = rise = found.log_densities - state.log_densities
    gain += frame.log_volumes(there) - frame.log_volumes(here)
    local = log_ratio(proposal.log_sizes, state.log_size, proposal.scores, scores)
    leapt = 0.5 * jnp.sum(proposal.momenta**2 - momenta**2, axis=1)
    leapt += jnp.where(proposal.is_local, local, 0.0)
    jumped = state.jumps.log_densities(here) - state.jumps.log_densities(there)
    gain += jnp.where(is_jump, jumped, leapt)
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
        momenta=jnp.where(is_jump, proposal.momenta, jnp.where(rows, momenta, -proposal.momenta)),
        num_rejections=jnp.where(is_accepted, 0, state.num_rejections + 1),
    )
    chance = jnp.mean(jnp.exp(jnp.minimum(gain, 0.0)))
    return state, chance.astype(there.dtype)
