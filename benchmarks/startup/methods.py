"""The samplers, each with its library's defaults; all start from N(0, I) except PyMC's.

Every function takes a `Problem` and returns a function from a seed to 256 draws. Their packages
are imported inside, so that a process pays only for its own method.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

NUM_PARTICLES, NUM_STEPS = 256, 2000
NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 4, 1000, 1000


class Problem(NamedTuple):
    """What a sampler is given."""

    name: str
    dim: int
    log_density: Callable[[Any], Any] | None = None
    """None in a process without JAX."""
    data: dict[str, Any] | None = None
    """For a PyMC model."""


Run = Callable[[int], np.ndarray]


def thinned(chains: Any) -> np.ndarray:
    """256 of the draws (chains, draws, d), evenly spaced in each chain."""
    chains = np.asarray(chains)
    num_chains, num_draws, dim = chains.shape
    index = np.linspace(0, num_draws - 1, NUM_PARTICLES // num_chains).round().astype(int)
    return chains[:, index].reshape(-1, dim)


def neural(problem: Problem) -> Run:
    """`nvgd.sample` with as many steps in every run, for the cost of its compilation."""
    return _flow(problem, None)


def bare(problem: Problem) -> Run:
    """`nvgd.sample` without any further argument, and with its cache of compiled programs."""
    return _flow(problem, None, {})


def paper(problem: Problem) -> Run:
    """`nvgd.NVGD.paper()`, for the cost of its compilation."""
    import nvgd

    return _flow(problem, nvgd.NVGD.paper())


def _flow(problem: Problem, flow: Any, size: dict[str, int] | None = None) -> Run:
    import nvgd

    assert problem.log_density is not None
    log_density = problem.log_density
    size = {"num_particles": NUM_PARTICLES, "num_steps": NUM_STEPS} if size is None else size

    def run(seed: int) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nvgd.RunStoppedWarning)
            posterior = nvgd.sample(
                log_density,
                flow,
                dim=problem.dim,
                **size,
                seed=seed,
                progress=False,
            )
        particles = np.asarray(posterior.particles)
        # A run that stopped early counts as diverged.
        return particles if posterior.completed else np.full_like(particles, np.nan)

    return run


def blackjax_nuts(problem: Problem) -> Run:
    """Window adaptation in every chain, then draws; chains mapped as in BlackJAX's how-to."""
    import blackjax
    import jax

    log_density: Any = problem.log_density
    warmup: Any = blackjax.window_adaptation(blackjax.nuts, log_density)
    kernel = blackjax.nuts.build_kernel()

    def adapt(key, position):
        (state, parameters), _ = warmup.run(key, position, NUM_WARMUP)
        return state, parameters

    def draw(key, state, parameters):
        def step(state, key):
            state, _ = kernel(key, state, log_density, **parameters)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(key, NUM_DRAWS))[1]

    adapt_all, draw_all = jax.jit(jax.vmap(adapt)), jax.jit(jax.vmap(draw))

    def run(seed: int) -> np.ndarray:
        start_key, warmup_key, draw_key = jax.random.split(jax.random.key(seed), 3)
        starts = jax.random.normal(start_key, (NUM_CHAINS, problem.dim))
        adapted = adapt_all(jax.random.split(warmup_key, NUM_CHAINS), starts)
        return thinned(draw_all(jax.random.split(draw_key, NUM_CHAINS), *adapted))

    return run


def blackjax_meads(problem: Problem) -> Run:
    """MEADS: 256 chains of generalised HMC; the last state of each is a draw.

    As many gradients as NVGD: 1000 steps of adaptation, then 1000 with fixed parameters. From
    N(0, I), far from the posterior of `hidden_markov`, the adaptation runs away in single and in
    double precision; from starts near the mode it does not.
    """
    import blackjax
    import jax

    log_density: Any = problem.log_density
    warmup: Any = blackjax.meads_adaptation(log_density, num_chains=NUM_PARTICLES)

    @jax.jit
    def sample(key):
        start_key, warmup_key, draw_key = jax.random.split(key, 3)
        starts = jax.random.normal(start_key, (NUM_PARTICLES, problem.dim))
        (states, parameters), _ = warmup.run(warmup_key, starts, NUM_WARMUP)
        step: Any = jax.vmap(blackjax.ghmc(log_density, **parameters).step)

        def advance(states, key):
            return step(jax.random.split(key, NUM_PARTICLES), states)[0], None

        keys = jax.random.split(draw_key, NUM_DRAWS)
        return jax.lax.scan(advance, states, keys)[0].position

    return lambda seed: np.asarray(sample(jax.random.key(seed)))


def numpyro_nuts(problem: Problem) -> Run:
    """NumPyro's NUTS, chains vectorised."""
    import jax
    from numpyro.infer import MCMC, NUTS

    log_density: Any = problem.log_density
    mcmc = MCMC(
        NUTS(potential_fn=lambda x: -log_density(x)),
        num_warmup=NUM_WARMUP,
        num_samples=NUM_DRAWS,
        num_chains=NUM_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )

    def run(seed: int) -> np.ndarray:
        start_key, run_key = jax.random.split(jax.random.key(seed))
        starts = jax.random.normal(start_key, (NUM_CHAINS, problem.dim))
        mcmc.run(run_key, init_params=starts)
        return thinned(mcmc.get_samples(group_by_chain=True))

    return run


def nutpie_jax(problem: Problem) -> Run:
    """Nutpie, which calls the compiled gradient of the JAX log density from Rust."""
    import jax
    import nutpie
    from nutpie.compiled_pyfunc import from_pyfunc

    log_density: Any = problem.log_density
    value_and_gradient = jax.jit(jax.value_and_grad(log_density))

    def evaluate(position):
        value, gradient = value_and_gradient(position)
        return float(value), np.asarray(gradient, np.float64)

    model = from_pyfunc(
        problem.dim,
        make_logp_fn=lambda: evaluate,
        make_expand_fn=lambda *seeds: lambda position: {"x": position},
        expanded_dtypes=[np.dtype(np.float64)],
        expanded_shapes=[(problem.dim,)],
        expanded_names=["x"],
        make_initial_point_fn=lambda seed: np.random.default_rng(seed).normal(size=problem.dim),
    )
    return lambda seed: thinned(_nutpie_draws(nutpie, model, seed)["x"])


def nutpie_pymc(problem: Problem) -> Run:
    """Nutpie on a PyMC model, compiled by Numba, its default."""
    import nutpie

    from benchmarks.startup.pymc_models import STATEMENTS

    statement = STATEMENTS[problem.name]
    assert problem.data is not None
    model = nutpie.compile_pymc_model(statement.model(problem.data))
    return lambda seed: thinned(statement.coordinates(_nutpie_draws(nutpie, model, seed)))


def _nutpie_draws(nutpie: Any, model: Any, seed: int) -> Any:
    trace = nutpie.sample(
        model,
        draws=NUM_DRAWS,
        tune=NUM_WARMUP,
        chains=NUM_CHAINS,
        seed=seed,
        progress_bar=False,
    )
    return trace.posterior


def pymc_nuts(problem: Problem) -> Run:
    """PyMC's own NUTS."""
    import pymc as pm

    from benchmarks.startup.pymc_models import STATEMENTS

    statement = STATEMENTS[problem.name]
    assert problem.data is not None
    model = statement.model(problem.data)

    def run(seed: int) -> np.ndarray:
        trace: Any = pm.sample(
            NUM_DRAWS,
            tune=NUM_WARMUP,
            chains=NUM_CHAINS,
            random_seed=seed,
            progressbar=False,
            model=model,
        )
        return thinned(statement.coordinates(trace.posterior))

    return run


class Method(NamedTuple):
    """A sampler, the packages its user imports, and how it is stated."""

    make: Callable[[Problem], Run]
    packages: tuple[str, ...]
    is_pymc: bool = False


METHODS: dict[str, Method] = {
    "nvgd": Method(bare, ("jax.numpy", "nvgd")),
    "blackjax_nuts": Method(blackjax_nuts, ("jax.numpy", "blackjax")),
    "blackjax_meads": Method(blackjax_meads, ("jax.numpy", "blackjax")),
    "numpyro_nuts": Method(numpyro_nuts, ("jax.numpy", "numpyro.infer")),
    "nutpie": Method(nutpie_jax, ("jax.numpy", "nutpie")),
    "nutpie_pymc": Method(nutpie_pymc, ("pymc", "nutpie"), is_pymc=True),
    "pymc_nuts": Method(pymc_nuts, ("pymc",), is_pymc=True),
}
