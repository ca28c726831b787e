"""Corrections: Metropolis-adjusted steps, which leave the target invariant.

A learned field is biased where coordinates and network cannot represent the target. Particles near
the target are good starting points for Markov chains, and their spread is the preconditioner that
chains otherwise need a long warm-up to find. The chains soon forget the remaining bias.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from nvgd._support.compilation import quickly_compiled
from nvgd.exact.adaptation import Adapted, adapt
from nvgd.exact.chain_steps import CorrectionState, Proposal, adopt, decide, propose
from nvgd.exact.modes import Modes
from nvgd.flow.coordinates.base import AbstractCoordinates
from nvgd.flow.stage import (
    AbstractStage,
    StepInfo,
    num_non_finite,
    root_mean_square_distance,
)
from nvgd.targets.scores import Scores
from nvgd.targets.target import Target, evaluate

# Target acceptance rate, and the rate at which the step size adapts to it.
ACCEPTANCE = 0.8
ADAPTATION = 0.1
# Number of fits of coordinates and jumps, over the half of the steps that adapts.
NUM_FITS = 10
# Most states of the chains that are kept, and most numbers that these consist of.
MOST_KEPT = 64
MOST_NUMBERS = 2**26


class Corrections(AbstractStage):
    """Generalised Hamiltonian Monte Carlo on all particles, in coordinates fitted to them.

        r ← αr + √(1 − α²) ξ,   one leapfrog step (u, r) → (u', r') of size ε,
        accepted with probability min(1, p(u')N(r')/p(u)N(r)); if not, r ← −r       (α = e^(−ε/2))

    After Horowitz ("A generalized guided Monte Carlo algorithm", 1991), tuned by the ensemble as in
    Hoffman and Sountsov ("Tuning-free generalized Hamiltonian Monte Carlo", 2022): u are
    coordinates in which the particles have unit spread, and ε is such that .8 of the moves are
    accepted. One gradient per particle and step. Two kinds of steps are interspersed: ten steps in
    twenty have sizes that follow the local scale of the target (`local_steps`), and every tenth
    step is a jump, which can lead to another mode (`jumps`).

    Coordinates, jumps and ε adapt over the first half of the corrections, and particles that are
    stray or stuck are replaced by others (`adaptation`). In the second half nothing adapts, so that
    the target is kept exactly, and the states at regular intervals are draws (`kept_steps`).

    Arguments:
        coordinates: the coordinates of the flow.
        memory: the state of the coordinates at the end of the flow, such as the driver found.
        first_step: the step of the run at which the corrections begin.
        num_steps: number of corrections.
        log_size: log ε to begin with.
        modes: separate modes, if some are known; every second jump then shifts particles between
            them (`modes`).
    """

    coordinates: AbstractCoordinates
    memory: PyTree
    first_step: Int[Array, ""] = eqx.field(converter=jnp.asarray)
    num_steps: Int[Array, ""] = eqx.field(converter=jnp.asarray)
    log_size: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    modes: Modes | None = None

    @classmethod
    def of(
        cls,
        coordinates: AbstractCoordinates,
        memory: PyTree,
        first_step: Int[Array, ""] | int,
        num_steps: Int[Array, ""] | int,
        particles: Float[Array, "n d"],
        modes: Modes | None = None,
    ) -> "Corrections":
        """Corrections of these particles, with a step size for unit spread."""
        size = np.asarray(0.5 * particles.shape[1] ** -0.25, particles.dtype)
        return cls(coordinates, memory, first_step, num_steps, np.log(size), modes)

    def init_gradients(self, num_particles):
        """One gradient per particle."""
        return num_particles

    def init(
        self, target: Target, particles: Float[Array, "n d"], *, key: PRNGKeyArray
    ) -> CorrectionState:
        """Evaluate the particles, adapt to them, and make the first proposal."""
        found = evaluate(target, particles)
        none = jnp.zeros(len(particles), int)
        adapted = adapt(self.coordinates, self.memory, particles, found, none, self.first_step, key)
        return _begun(self, particles, found, adapted, key)

    def is_adapting(self, step: Any) -> Any:
        """Whether the step after `step` still adapts; of an array of steps, which of them do."""
        return 2 * (step - self.first_step) < self.num_steps

    def is_due(self, state, step):
        """At regular intervals while the stage adapts; not at once, since `init` does it, too."""
        del state
        # Operators only, since `step` and the fields may be NumPy arrays, on the host.
        number = step - self.first_step
        length = self.num_steps + (self.num_steps == 0)
        fit, earlier = (2 * NUM_FITS * at // length for at in (number, number - 1))
        return self.is_adapting(step) & (fit > earlier) & (number > 0)

    def prepare(self, state, found, *, key):
        """Adapt coordinates and jumps to the particles."""
        del found
        here = Scores(state.log_densities, state.scores)
        adapted = adapt(
            self.coordinates,
            self.memory,
            state.particles,
            here,
            state.num_rejections,
            state.step,
            key,
        )
        return state._replace(adapted=adapted)

    @property
    def end(self) -> int:
        """The step of the run at which the corrections end."""
        return int(self.first_step) + int(self.num_steps)

    def kept_steps(self, num_particles, dim):
        """At most `MOST_KEPT` steps, evenly spaced over the part that does not adapt."""
        length = int(self.num_steps)
        window = length - length // 2
        most = max(min(MOST_KEPT, MOST_NUMBERS // (2 * num_particles * dim)), 1)
        every = -(-window // most)
        return range(self.end - (window - 1) // every * every, self.end + 1, every)

    def positions(self, state):
        """The proposals."""
        return state.proposal.positions

    def update(self, state, found, view, *, key):
        """Accept or reject the proposals, adapt the step size, and make the next proposals."""
        del view
        is_jump = state.proposal.is_jump
        moved, chance = decide(state, found.masked())
        change = jnp.where(
            self.is_adapting(state.step) & ~is_jump, ADAPTATION * (chance - ACCEPTANCE), 0.0
        )
        moved = adopt(moved)._replace(
            step=state.step + 1,
            log_size=state.log_size + change,
            acceptance=jnp.where(is_jump, state.acceptance, chance),
            jump_acceptance=jnp.where(is_jump, chance, state.jump_acceptance),
        )
        number = moved.step - self.first_step
        moved = moved._replace(
            proposal=propose(moved, number, state.adapted.is_new, key, self.modes)
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
        """The states of the chains."""
        del target
        return state.particles


@quickly_compiled
def _begun(
    stage: Corrections,
    particles: Float[Array, "n d"],
    found: Scores,
    adapted: Adapted,
    key: PRNGKeyArray,
) -> CorrectionState:
    """The first state, with its proposal."""
    found = found.masked()
    zero = jnp.zeros((), particles.dtype)
    state = CorrectionState(
        particles=particles,
        step=stage.first_step,
        log_densities=found.log_densities,
        scores=found.scores,
        momenta=jnp.zeros_like(particles),
        num_rejections=jnp.zeros(len(particles), int),
        log_size=stage.log_size,
        frame=adapted.frame,
        jumps=adapted.jumps,
        proposal=Proposal.none(particles),
        adapted=adapted,
        acceptance=zero,
        jump_acceptance=zero,
    )
    state = adopt(state)
    proposal = propose(state, jnp.array(0), jnp.array(True), key, stage.modes)
    return state._replace(proposal=proposal)
