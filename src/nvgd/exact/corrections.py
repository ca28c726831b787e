"""Corrections: Metropolis-adjusted steps, which leave the target invariant.

A learned field is biased where coordinates and network cannot represent the target. Particles near
the target are good starting points for Markov chains, and their spread is the preconditioner that
chains otherwise need a long warm-up to find. The chains soon forget the remaining bias.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from nvgd._support.compilation import quickly_compiled
from nvgd.exact.adaptation import Snapshots, adapt
from nvgd.exact.chain_steps import CorrectionState, decide, propose, start
from nvgd.exact.modes import Modes
from nvgd.flow.coordinates.base import AbstractCoordinates
from nvgd.flow.stage import (
    AbstractStage,
    StepInfo,
    num_non_finite,
    root_mean_square_distance,
)
from nvgd.targets.evaluation import evaluate
from nvgd.targets.scores import Scores
from nvgd.targets.target import Target

# Target acceptance rate, and the rate at which the step size adapts to it.
ACCEPTANCE = 0.8
ADAPTATION = 0.1
# Default share of the corrections that adapts.
SHARE_ADAPTING = 0.5
# Number of fits of coordinates and jumps, over the half of the steps that adapts, and fewest steps
# from one to the next.
NUM_FITS = 10
LEAST_BETWEEN_FITS = 5
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

    Coordinates, jumps and ε adapt over the first part of the corrections, half of them by default,
    and particles that are stray or stuck are replaced by others (`adaptation`). With fewer than
    eight particles per dimension, coordinates are fitted to up to five states of each chain; with
    fewer than two, the scores improve them (`low_rank_frame`). In the second part nothing
    adapts, so that the target is kept exactly, and the states at regular
    intervals are draws (`kept_steps`).

    Arguments:
        coordinates: the coordinates of the flow.
        memory: the state of the coordinates at the end of the flow, such as the driver found.
        first_step: the step of the run at which the corrections begin.
        num_steps: number of corrections.
        log_size: log ε to begin with.
        modes: separate modes, if some are known; every second jump then shifts particles between
            them (`modes`).
        adapting: share of the corrections that adapts.
    """

    coordinates: AbstractCoordinates
    memory: PyTree
    first_step: Int[Array, ""] = eqx.field(converter=jnp.asarray)
    num_steps: Int[Array, ""] = eqx.field(converter=jnp.asarray)
    log_size: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    modes: Modes | None = None
    adapting: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=SHARE_ADAPTING)

    @classmethod
    def of(
        cls,
        coordinates: AbstractCoordinates,
        memory: PyTree,
        first_step: Int[Array, ""] | int,
        num_steps: Int[Array, ""] | int,
        particles: Float[Array, "n d"],
        modes: Modes | None = None,
        adapting: float = SHARE_ADAPTING,
    ) -> "Corrections":
        """Corrections of these particles, with a step size for unit spread."""
        size = np.asarray(0.5 * particles.shape[1] ** -0.25, particles.dtype)
        return cls(coordinates, memory, first_step, num_steps, np.log(size), modes, adapting)

    def init_gradients(self, num_particles):
        """One gradient per particle."""
        return num_particles

    def init(
        self, target: Target, particles: Float[Array, "n d"], *, key: PRNGKeyArray
    ) -> CorrectionState:
        """Evaluate the particles and adapt to them."""
        found, none = evaluate(target, particles), jax.device_put(np.zeros(len(particles), int))
        past = Snapshots.of(particles, found.scores)
        return _adapted(self, particles, found, none, past, self.first_step, key)

    def is_adapting(self, step: Any) -> Any:
        """Whether the step after `step` still adapts; of an array of steps, which of them do."""
        return step - self.first_step < self.adapting * self.num_steps

    def is_due(self, state, step):
        """At regular intervals while the stage adapts; not at once, since `init` does it, too."""
        del state
        # Operators only, since `step` and the fields may be NumPy arrays, on the host.
        number, every = step - self.first_step, self.adapting * self.num_steps // NUM_FITS
        every = every + (every < LEAST_BETWEEN_FITS) * (LEAST_BETWEEN_FITS - every)
        return self.is_adapting(step) & (number % every == 0) & (number > 0)

    def prepare(self, state, found, *, key):
        """Adapt coordinates and jumps to the particles. The proposal of the old frame is lost."""
        del found
        here = Scores(state.log_densities, state.scores)
        adapted = _adapted(
            self, state.particles, here, state.num_rejections, state.past, state.step, key
        )
        kept = ("log_size", "acceptance", "jump_acceptance")
        return adapted._replace(**{name: getattr(state, name) for name in kept})

    @property
    def end(self) -> int:
        """The step of the run at which the corrections end."""
        return int(self.first_step) + int(self.num_steps)

    def kept_steps(self, num_particles, dim):
        """At most `MOST_KEPT` steps, evenly spaced over the part that does not adapt."""
        window = int(self.num_steps) - int(float(self.adapting) * int(self.num_steps))
        most = max(min(MOST_KEPT, MOST_NUMBERS // (2 * num_particles * dim)), 1)
        every = max(-(-window // most), 1)
        return range(self.end - (window - 1) // every * every, self.end + 1, every)

    def positions(self, state):
        """The proposals."""
        return state.proposal.positions

    def update(self, state, found, view, *, key):
        """Accept or reject the proposals, adapt the step size, and make the next proposals."""
        del view
        is_jump, is_none = state.proposal.is_jump, state.proposal.is_none
        is_leapt = ~(is_jump | is_none)
        moved, chance = decide(state, found.masked())
        change = jnp.where(
            self.is_adapting(state.step) & is_leapt, ADAPTATION * (chance - ACCEPTANCE), 0.0
        )
        moved = moved._replace(
            step=state.step + 1,
            log_size=state.log_size + change,
            acceptance=jnp.where(is_leapt, chance, state.acceptance),
            jump_acceptance=jnp.where(is_jump, chance, state.jump_acceptance),
        )
        number = moved.step - self.first_step
        moved = moved._replace(proposal=propose(moved, number, key, self.modes))
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


@functools.partial(quickly_compiled, runs_often=True)
def _adapted(
    stage: Corrections,
    particles: Float[Array, "n d"],
    found: Scores,
    num_rejections: Int[Array, " n"],
    past: Snapshots | None,
    step: Int[Array, ""],
    key: PRNGKeyArray,
) -> CorrectionState:
    """Chains that start from these particles, in coordinates adapted to them."""
    found = found.masked()
    # At first the chains still move away from where the flow has left them.
    is_late = 2 * (step - stage.first_step) > stage.adapting * stage.num_steps
    past = jax.tree.map(
        lambda new, old: jnp.where(is_late, old, new), Snapshots.of(particles, found.scores), past
    )
    adapted = adapt(
        stage.coordinates, stage.memory, particles, found, num_rejections, past, step, key
    )
    if past is not None:
        past = past.followed_by(particles, found.scores)
    chains = particles, found, adapted, num_rejections, past
    return start(*chains, step, stage.log_size, has_modes=stage.modes is not None)
