"""The samplers of the table, each with 256 × 2000 gradients for 256 draws.

All start from N(0, I). Only the step sizes of SVGD, ULA and variational inference are tuned to a
posterior: several are run, and the one with the smallest energy distance is chosen in hindsight,
which a user could not do.
"""

import dataclasses
import functools
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import nvgd
from benchmarks.posteriors.ablations import FLOWS
from benchmarks.posteriors.judge import DIVERGED, NUM_PARTICLES, Judge, Judgement
from benchmarks.posteriors.posterior import BenchmarkPosterior
from nvgd._support.errors import InputError

NUM_STEPS = 2000
NUM_GRADIENTS = NUM_PARTICLES * NUM_STEPS
STEP_SIZES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
NUM_CHAINS, NUM_WARMUP = 4, 500
# Gradients per step of variational inference. With 32, the AR(5) ended at 200 times the energy
# distance of exact draws, with 2 at less than twice: many noisy steps beat few exact ones.
ELBO_PARTICLES = 2
# Of the first step; they fall to a thousandth.
LEARNING_RATES = (0.01, 0.1, 1.0)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a method."""

    judgement: Judgement
    num_gradients: int
    note: str = ""


Method = Callable[[BenchmarkPosterior, Judge, int], Outcome]


def start(posterior: BenchmarkPosterior, judge: Judge, seed: int) -> Outcome:
    """Draws of N(0, I), where all methods start."""
    draws = jax.random.normal(jax.random.key(seed), (NUM_PARTICLES, posterior.dim))
    return Outcome(judge(draws), 0)


def neural(posterior: BenchmarkPosterior, judge: Judge, seed: int) -> Outcome:
    """`nvgd.sample` with its defaults."""
    return _flow(None, posterior, judge, seed)


def kernel(posterior: BenchmarkPosterior, judge: Judge, seed: int) -> Outcome:
    """SVGD with the best of five step sizes."""
    return _best(nvgd.SVGD, posterior, judge, seed)


def langevin(posterior: BenchmarkPosterior, judge: Judge, seed: int) -> Outcome:
    """ULA with the best of five step sizes."""
    return _best(nvgd.ULA, posterior, judge, seed)


def _best(
    flow: Callable[[float], nvgd.ParticleFlow],
    posterior: BenchmarkPosterior,
    judge: Judge,
    seed: int,
) -> Outcome:
    outcomes = []
    for step_size in STEP_SIZES:
        outcome = _flow(flow(step_size), posterior, judge, seed)
        note = f"step size {step_size:g}" if outcome.note == "" else outcome.note
        outcomes.append(dataclasses.replace(outcome, note=note))
    return min(outcomes, key=lambda outcome: outcome.judgement.energy_distance)


def _flow(
    flow: nvgd.ParticleFlow | None, posterior: BenchmarkPosterior, judge: Judge, seed: int
) -> Outcome:
    """A run of the library; one that stopped early counts as diverged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nvgd.RunStoppedWarning)
        try:
            result = nvgd.sample(
                posterior.log_density,
                flow,
                dim=posterior.dim,
                num_particles=NUM_PARTICLES,
                num_steps=NUM_STEPS,
                seed=seed,
                progress=False,
            )
        except InputError as error:  # the log density is not finite at the start
            return Outcome(DIVERGED, 0, str(error))
    num_gradients = NUM_PARTICLES * result.num_steps
    if not result.completed:
        return Outcome(DIVERGED, num_gradients, result.status)
    return Outcome(judge(result.particles), num_gradients)


def nuts(posterior: BenchmarkPosterior, judge: Judge, seed: int) -> Outcome:
    """NumPyro's NUTS with its defaults: a diagonal mass matrix."""
    return _nuts(posterior, judge, seed, dense_mass=False)


def nuts_dense(posterior: BenchmarkPosterior, judge: Judge, seed: int) -> Outcome:
    """NUTS that learns a full mass matrix."""
    return _nuts(posterior, judge, seed, dense_mass=True)


def _nuts(posterior: BenchmarkPosterior, judge: Judge, seed: int, *, dense_mass: bool) -> Outcome:
    """64 draws from each chain of NUTS."""
    per_chain = NUM_PARTICLES // NUM_CHAINS
    chains, spent = nuts_chains(posterior, seed, dense_mass=dense_mass)
    counts = [len(draws) for draws in chains]
    kept = []
    for draws in map(after_warmup, chains):
        index = np.linspace(0, len(draws) - 1, per_chain).round().astype(int)
        kept.append(draws[index])
    return Outcome(judge(np.concatenate(kept)), spent, f"{min(counts)} to {max(counts)} draws")


def after_warmup(draws: np.ndarray) -> np.ndarray:
    """The draws after the warm-up; the second half if the budget ended in it, or soon after."""
    is_long = len(draws) >= NUM_WARMUP + NUM_PARTICLES // NUM_CHAINS
    return draws[NUM_WARMUP if is_long else len(draws) // 2 :]


def nuts_chains(
    posterior: BenchmarkPosterior, seed: int, *, dense_mass: bool
) -> tuple[list[np.ndarray], int]:
    """All states of four chains with a quarter of the gradients each, and the gradients in all.

    Gradients of leapfrog steps are counted, those of the warm-up included; the few of the search
    for a first step size are not.
    """
    from numpyro.infer import NUTS  # pyright: ignore[reportMissingImports]

    budget = NUM_GRADIENTS // NUM_CHAINS
    sampler = NUTS(potential_fn=lambda x: -posterior.log_density(x), dense_mass=dense_mass)

    @jax.jit
    def run(state):
        def goes_on(carry):
            return carry[1] < budget

        def transition(carry):
            state, spent, count, draws = carry
            state = sampler.sample(state, (), {})
            draws = draws.at[count].set(state.z)
            return state, spent + state.num_steps, count + 1, draws

        # A transition takes at least one gradient.
        draws = jnp.zeros((budget, posterior.dim))
        return jax.lax.while_loop(goes_on, transition, (state, 0, 0, draws))[1:]

    chains, spent = [], 0
    for key in jax.random.split(jax.random.key(seed), NUM_CHAINS):
        start_key, chain_key = jax.random.split(key)
        position = jax.random.normal(start_key, (posterior.dim,))
        state = sampler.init(chain_key, NUM_WARMUP, position, (), {})
        chain_spent, count, draws = run(state)
        spent += int(chain_spent)
        chains.append(np.asarray(draws)[: int(count)])
    return chains, spent


def mean_field(posterior: BenchmarkPosterior, judge: Judge, seed: int) -> Outcome:
    """Variational inference with independent normals."""
    from numpyro.infer.autoguide import AutoNormal  # pyright: ignore[reportMissingImports]

    return _variational(AutoNormal, posterior, judge, seed)


def full_rank(posterior: BenchmarkPosterior, judge: Judge, seed: int) -> Outcome:
    """Variational inference with one multivariate normal."""
    from numpyro.infer.autoguide import (  # pyright: ignore[reportMissingImports]
        AutoMultivariateNormal,
    )

    return _variational(AutoMultivariateNormal, posterior, judge, seed)


def _variational(
    family: Callable, posterior: BenchmarkPosterior, judge: Judge, seed: int
) -> Outcome:
    """Adam on the evidence lower bound, from N(0, I); the best of three rates."""
    outcomes = []
    for rate in LEARNING_RATES:
        judgement = judge(_variational_draws(family, posterior, rate, seed))
        outcomes.append(Outcome(judgement, NUM_GRADIENTS, f"learning rate {rate:g}"))
    return min(outcomes, key=lambda outcome: outcome.judgement.energy_distance)


def _variational_draws(
    family: Callable, posterior: BenchmarkPosterior, learning_rate: float, seed: int
) -> np.ndarray:
    import numpyro  # pyright: ignore[reportMissingImports]
    import optax
    from numpyro.distributions import (  # pyright: ignore[reportMissingImports]
        ImproperUniform,
        constraints,
    )
    from numpyro.infer import (  # pyright: ignore[reportMissingImports]
        SVI,
        Trace_ELBO,
        init_to_value,
    )

    def model():
        flat = ImproperUniform(constraints.real_vector, (), (posterior.dim,))
        position = jnp.asarray(numpyro.sample("x", flat))
        numpyro.factor("log_density", posterior.log_density(position))

    zeros = init_to_value(values={"x": jnp.zeros(posterior.dim)})
    guide = family(model, init_loc_fn=zeros, init_scale=1.0)
    num_steps = NUM_GRADIENTS // ELBO_PARTICLES
    falling = optax.exponential_decay(learning_rate, num_steps, 1e-3)
    inference = SVI(model, guide, optax.adam(falling), Trace_ELBO(num_particles=ELBO_PARTICLES))
    run_key, draw_key = jax.random.split(jax.random.key(seed))
    result = inference.run(run_key, num_steps, progress_bar=False, stable_update=True)
    draws = guide.sample_posterior(draw_key, result.params, sample_shape=(NUM_PARTICLES,))
    return np.asarray(draws["x"])


RIVALS: dict[str, Method] = {
    "start": start,
    "nvgd": neural,
    "nuts": nuts,
    "nuts_dense": nuts_dense,
    "svgd": kernel,
    "ula": langevin,
    "mean_field": mean_field,
    "full_rank": full_rank,
}
METHODS: dict[str, Method] = {
    **RIVALS,
    **{name: functools.partial(_flow, flow) for name, flow in FLOWS.items()},
}
