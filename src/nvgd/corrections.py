"""The end of a run: steps that are accepted or rejected, and so keep the target exactly.

A learned field is biased where the target is harder than the coordinates and the network can tell.
Particles that have come near it are good starting points of chains, and their spread is the
preconditioner that chains otherwise spend long on: what is left of the bias is soon forgotten.
"""

from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from nvgd import jumps
from nvgd.coordinates import AbstractCoordinates, AbstractFrame
from nvgd.crowds import selection
from nvgd.returned import flow_unless_wrong

if TYPE_CHECKING:
    from nvgd.flow import FlowInfo, FlowState
    from nvgd.target import Target

# A run has at least so many steps of the flow, and of a longer run this share;
FEWEST_FLOW_STEPS = 400
FLOW_SHARE = 0.2
# no corrections if there were fewer of them.
FEWEST_CORRECTIONS = 100
# Momentum is forgotten at this rate, in units of the particles' own spread.
FRICTION = 0.5
# A step is one of these multiples of the ensemble's size, at random: stiff places need small ones.
MULTIPLES = (1.0, 0.7, 0.3)
# Every so many steps a jump is tried instead.
JUMP_EVERY = 10
# Over the first quarter its probability is taken to this power if it leads uphill from a place so
# many times as far away as particles usually are: who is stranded gets away.
LENIENCE = 0.3
STRANDED = 3.0
ACCEPTANCE = 0.7
ADAPTATION = 0.1
# Coordinates are fitted anew so many times over the first half; from then on nothing adapts.
NUM_FITS = 10
# Particles further from the others, in units of their spread, are strays.
FARTHEST = 10.0
# Particles that have been rejected so many times in a row are stuck.
MOST_REJECTIONS = 100
# Where particles were at so many moments of the second half says what they ought to look like.
NUM_SNAPSHOTS = 8


class CorrectionState(NamedTuple):
    """Where the flow left the particles, and the proposals whose scores come next."""

    is_begun: Bool[Array, ""]
    before: Float[Array, "n d"]
    is_sound: Bool[Array, ""]
    """Whether the log density was finite wherever the flow left the particles."""
    particles: Float[Array, "n d"]
    """The chains, which go on from here if a run is made longer, whatever it has returned."""
    proposals: Float[Array, "n d"]
    log_densities: Float[Array, " n"]
    scores: Float[Array, "n d"]
    momenta: Float[Array, "n d"]
    """Of the particles, in the frame's coordinates."""
    num_rejections: Int[Array, " n"]
    """In a row, until now."""
    midway: Float[Array, "n d"]
    """Of the proposals, half a step before them."""
    is_jump: Bool[Array, ""]
    """Whether the proposals are draws instead of steps."""
    sizes: Float[Array, "n 1"]
    log_size: Float[Array, ""]
    snapshots: Float[Array, "k m d"]
    frame: AbstractFrame

    @classmethod
    def empty(
        cls, coordinates: AbstractCoordinates, state: PyTree, particles: Float[Array, "n d"]
    ) -> "CorrectionState":
        """Nothing yet, in the shapes that the first correction fills."""
        frame = eqx.filter_eval_shape(coordinates.settled, particles, particles, state)
        frame = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), frame)
        rows, number = jnp.zeros_like(particles), jnp.zeros((), particles.dtype)
        each, selected = rows[:, 0], jnp.zeros((NUM_SNAPSHOTS, *selection(rows).shape), rows.dtype)
        return cls(
            is_begun=jnp.array(False),
            before=rows,
            is_sound=jnp.array(False),
            particles=rows,
            proposals=rows,
            log_densities=each,
            scores=rows,
            momenta=rows,
            num_rejections=jnp.zeros(len(particles), int),
            midway=rows,
            is_jump=jnp.array(False),
            sizes=each[:, None],
            log_size=number,
            snapshots=selected,
            frame=frame,
        )


class Corrections(eqx.Module):
    """Generalised Hamiltonian Monte Carlo on all particles, in coordinates that fit them.

        r ← αr + √(1 − α²) ξ,   one leapfrog step (u, r) → (u', r') of size ε,
        accepted with probability min(1, p(u')N(r')/p(u)N(r)); if not, r ← −r       (α = e^(−ε/2))

    after Horowitz ("A generalized guided Monte Carlo algorithm", 1991), with an ensemble to tune it
    as in Hoffman and Sountsov ("Tuning-free generalized Hamiltonian Monte Carlo", 2022): u are the
    coordinates in which the particles have unit spread, ε is such that .7 of the moves are
    accepted. Both adapt over the first half of the corrections only. One gradient a step.

    Every tenth step is a jump instead: u' is drawn from a Student-t density g about the particles'
    centre and accepted with probability min(1, p(u')g(u)/p(u)g(u')), whatever the momentum
    (Tierney, "Markov chains for exploring posterior distributions", 1994). That brings home who is
    stranded where steps are too small for the way back, and carries particles between modes that
    lie apart. Over the first quarter, long before what is kept, the probability of a jump uphill
    from far away is taken to the power .3: g is small where the stranded are, and they would hardly
    leave otherwise.

    A flow's particles are spread more evenly than independent draws, which is worth keeping if they
    are where they should be. So at the end the flow's particles x and the corrected ones y are both
    compared with where the latter were at eight moments of the second half: if x is the nearer one
    in energy distance, without strays, and yᵢ has nothing to do with xᵢ any more, x is what the run
    returns.

    Arguments:
        coordinates: the flow's.
        begin, end: the first step of the corrections, and the run's length.
    """

    coordinates: AbstractCoordinates
    begin: Int[Array, ""] = eqx.field(converter=jnp.asarray)
    end: Int[Array, ""] = eqx.field(converter=jnp.asarray)

    def step(
        self, target: "Target", state: "FlowState", batch: PyTree = None, *, key: PRNGKeyArray
    ) -> tuple["FlowState", "FlowInfo"]:
        """Decide about the last proposals, and make the next ones."""
        from nvgd.flow import FlowInfo

        del batch
        keys = jax.random.split(jax.random.fold_in(key, state.step), 3)
        number = state.step - self.begin
        is_adapting = 2 * number < self.end - self.begin
        known = state.corrections
        # Not with number 0 if a run that was too short for corrections has been made longer.
        is_first = (number == 0) | ~known.is_begun
        known = known._replace(
            is_begun=jnp.array(True),
            before=jnp.where(is_first, state.particles, known.before),
            particles=jnp.where(is_first, state.particles, known.particles),
            log_size=jnp.where(is_first, _first_log_size(state.particles), known.log_size),
            snapshots=jnp.where(is_first, selection(state.particles), known.snapshots),
        )
        was_jump = known.is_jump & ~is_first
        is_lenient = 4 * number < self.end - self.begin
        known, chance = _decide(target, known, is_first, is_lenient, keys[0])
        is_sound = jnp.all(jnp.isfinite(known.log_densities))
        known = known._replace(
            is_sound=jnp.where(is_first, is_sound, known.is_sound),
            log_size=known.log_size
            + jnp.where(
                is_adapting & ~is_first & ~was_jump, ADAPTATION * (chance - ACCEPTANCE), 0.0
            ),
        )
        every = jnp.maximum((self.end - self.begin) // (2 * NUM_FITS), 1)
        is_due = is_first | (is_adapting & (number % every == 0))

        def fitted() -> CorrectionState:
            frame = self.coordinates.settled(known.particles, known.scores, state.coordinates)
            return _without_strays(known._replace(frame=frame), keys[1])

        known = jax.lax.cond(is_due, fitted, lambda: known)
        known = _propose(known, is_due, number % JUMP_EVERY == JUMP_EVERY - 1, keys[2])
        slot, last_slot = (
            2 * NUM_SNAPSHOTS * at // (self.end - self.begin) - NUM_SNAPSHOTS
            for at in (number, number - 1)
        )
        kept = jnp.where((slot >= 0) & (slot > last_slot), slot, NUM_SNAPSHOTS)
        selected = selection(known.particles)
        known = known._replace(snapshots=known.snapshots.at[kept].set(selected, mode="drop"))
        chosen = jax.lax.cond(
            state.step == self.end - 1,
            lambda: jnp.where(
                known.is_sound,
                flow_unless_wrong(known.before, known.particles, known.snapshots),
                known.particles,
            ),
            lambda: known.particles,
        )
        info = FlowInfo(
            log_density=jnp.mean(known.log_densities, where=jnp.isfinite(known.log_densities)),
            step_norm=jnp.sqrt(jnp.mean(jnp.sum((chosen - state.particles) ** 2, axis=-1))),
            num_gradients=jnp.array(len(chosen)),
            num_faulty_scores=jnp.array(0),
            num_faulty_moves=jnp.sum(~jnp.all(jnp.isfinite(chosen), axis=-1)),
            diagnostics={
                "acceptance": jnp.where(was_jump, jnp.nan, chance),
                "jump_acceptance": jnp.where(was_jump, chance, jnp.nan),
            },
        )
        return state._replace(particles=chosen, corrections=known, step=state.step + 1), info


def num_flow_steps(num_steps: int) -> int:
    """Of a run with corrections, how many steps come before them."""
    number = max(FEWEST_FLOW_STEPS, round(FLOW_SHARE * num_steps))
    return number if num_steps - number >= FEWEST_CORRECTIONS else num_steps


def length_with_corrections(num_flow_steps: int) -> int:
    """The length of a run whose flow has so many steps."""
    has_corrections = num_flow_steps >= FEWEST_FLOW_STEPS
    return round(num_flow_steps / FLOW_SHARE) if has_corrections else num_flow_steps


def _first_log_size(particles: Float[Array, "n d"]) -> Float[Array, ""]:
    return jnp.log(jnp.asarray(0.5 * particles.shape[1] ** -0.25, particles.dtype))


def _decide(
    target: "Target",
    known: CorrectionState,
    is_first: Bool[Array, ""],
    is_lenient: Bool[Array, ""],
    key: PRNGKeyArray,
) -> tuple[CorrectionState, Float[Array, ""]]:
    """The particles where they are now, and the mean probability of acceptance."""
    there = jnp.where(is_first, known.particles, known.proposals)
    log_densities, scores = target.log_densities_and_scores(there, None)
    is_scored = jnp.isfinite(log_densities) & jnp.all(jnp.isfinite(scores), axis=-1)
    log_densities = jnp.where(is_scored, log_densities, -jnp.inf)
    scores = jnp.where(is_scored[:, None], scores, 0.0)

    expressed, expressed_scores = known.frame.express(there, scores)
    momenta = known.midway + 0.5 * known.sizes * expressed_scores
    here, _ = known.frame.express(known.particles, known.scores)
    rise = log_densities - known.log_densities
    rise += known.frame.log_volumes(expressed) - known.frame.log_volumes(here)
    gain = rise + jnp.where(
        known.is_jump,
        jumps.log_densities(here) - jumps.log_densities(expressed),
        0.5 * jnp.sum(known.momenta**2 - momenta**2, axis=1),
    )
    is_stranded = jnp.sum(here**2, axis=1) > STRANDED**2 * here.shape[1]
    gain *= jnp.where(known.is_jump & is_lenient & is_stranded & (rise > 0), LENIENCE, 1.0)
    # Not a number: neither here nor there is the log density finite, or the step went too far.
    gain = jnp.where(jnp.isnan(gain), -jnp.inf, gain)
    threshold = jnp.log(jax.random.uniform(key, gain.shape, gain.dtype))
    is_accepted = is_first | (threshold < gain)
    rows = is_accepted[:, None]
    known = known._replace(
        particles=jnp.where(rows, there, known.particles),
        log_densities=jnp.where(is_accepted, log_densities, known.log_densities),
        scores=jnp.where(rows, scores, known.scores),
        momenta=jnp.where(known.is_jump, known.momenta, jnp.where(rows, momenta, -known.momenta)),
        num_rejections=jnp.where(is_accepted, 0, known.num_rejections + 1),
    )
    chance = jnp.where(is_first, 1.0, jnp.mean(jnp.exp(jnp.minimum(gain, 0.0))))
    return known, chance.astype(there.dtype)


def _without_strays(known: CorrectionState, key: PRNGKeyArray) -> CorrectionState:
    """Particles far from all others, or stuck, go where another one is, and leave it by themselves.

    They lie in flat or narrow places that the flow should not have brought them to, or outside of
    the support, and would take too long on their way back.
    """
    expressed, _ = known.frame.express(known.particles, known.scores)
    num_particles, dim = expressed.shape
    is_stray = jnp.linalg.norm(expressed, axis=1) > FARTHEST + 2 * dim**0.5
    is_stray |= known.num_rejections >= MOST_REJECTIONS
    is_stray |= jnp.isneginf(known.log_densities)
    others = jax.random.randint(key, is_stray.shape, 0, num_particles)
    chosen = jnp.where(is_stray & ~is_stray[others], others, jnp.arange(num_particles))
    return known._replace(
        particles=known.particles[chosen],
        log_densities=known.log_densities[chosen],
        scores=known.scores[chosen],
        num_rejections=known.num_rejections[chosen],
    )


def _propose(
    known: CorrectionState,
    is_new_frame: Bool[Array, ""],
    is_jump: Bool[Array, ""],
    key: PRNGKeyArray,
) -> CorrectionState:
    particles = known.particles
    noise_key, size_key = jax.random.split(key)
    multiples = jnp.asarray(MULTIPLES, particles.dtype)
    chosen = jax.random.randint(size_key, (len(particles), 1), 0, len(MULTIPLES))
    sizes = jnp.exp(known.log_size) * multiples[chosen]
    kept = jnp.exp(-FRICTION * sizes)
    noise = jax.random.normal(noise_key, particles.shape, particles.dtype)
    momenta = kept * known.momenta + jnp.sqrt(1 - kept**2) * noise
    # In new coordinates old momenta mean nothing; before the first ones they are not numbers.
    momenta = jnp.where(is_new_frame, noise, momenta)
    expressed, expressed_scores = known.frame.express(particles, known.scores)
    midway = momenta + 0.5 * sizes * expressed_scores
    there = jnp.where(
        is_jump, jumps.draw(jax.random.fold_in(key, 1), particles), expressed + sizes * midway
    )
    return known._replace(
        proposals=known.frame.restore(there),
        momenta=momenta,
        midway=midway,
        is_jump=is_jump,
        sizes=sizes,
    )
