"""Rivals in minibatches, each with the best of a few settings in hindsight; and NUTS on all rows.

All start at the mode of all data, and the inverse Hessian there is their preconditioner; the time
to find them is not counted. In minibatches, all take as many steps of as many particles and rows.
"""

import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import nvgd
from benchmarks.minibatches.model import BATCH_SIZE, MinibatchModel
from benchmarks.posteriors.posterior import double_precision
from nvgd.flow.coordinates.preconditioners import Preconditioned
from nvgd.flow.directions.langevin import Langevin
from nvgd.flow.movers.plain import Euler

NUM_STEPS = 4000
NUM_PARTICLES = 256
# Step sizes in units in which the mode's covariance is the identity; learning rates of SVI. A grid
# whose best value is at an end is made longer by factors of ten, at most MOST_EXTRA times.
STEP_SIZES = (1e-3, 1e-2, 0.1)
RATES = (1e-3, 1e-2)
MOST_EXTRA = 2
# Leapfrog steps per step of SGHMC.
NUM_LEAPFROG = 10
# One chain of NUTS on all rows, in the coordinates of the references.
NUTS_WARMUP, NUTS_KEPT, NUTS_ACCEPT = 500, 1000, 0.8


class Sample(NamedTuple):
    """A sample of a rival, and what it took."""

    positions: Float[np.ndarray, "n d"]
    row_gradients: float
    """Gradients of the log likelihood of one row at one position, in all."""
    cpu_seconds: float
    """Processor time, with compilation."""


class Start(NamedTuple):
    """The normal approximation N(centre, RRᵀ) at the mode of all data."""

    centre: Float[np.ndarray, " d"]
    root: Float[np.ndarray, "d d"]

    @classmethod
    def at_mode(cls, model: MinibatchModel) -> "Start":
        """That of a model, found on all rows in double precision."""
        easy = model.posterior().easy
        assert easy is not None
        with double_precision():
            origin = jnp.zeros(model.dim)
            centre, root = np.asarray(easy.restore(origin)), jax.jacobian(easy.restore)(origin)
        return cls(centre.astype(np.float32), np.asarray(root, np.float32))

    @property
    def particles(self) -> Float[np.ndarray, "n d"]:
        """The starting particles, all at the mode."""
        return np.tile(self.centre, (NUM_PARTICLES, 1)).astype(np.float32)


Rival = Callable[[MinibatchModel, nvgd.Target, Start, float, int], Sample]


def best_setting(measure: Callable[[float], float], settings: tuple[float, ...]) -> float:
    """The setting of the smallest value, on a grid that is made longer where its end is best."""
    found = {setting: measure(setting) for setting in settings}
    for _ in range(MOST_EXTRA if len(settings) > 1 else 0):
        best = min(found, key=lambda setting: found[setting])
        further = {max(found): 10 * max(found), min(found): min(found) / 10}.get(best)
        if further is None:
            break
        found[further] = measure(further)
    return min(found, key=lambda setting: found[setting])


def normal(
    model: MinibatchModel, target: nvgd.Target, start: Start, size: float, seed: int
) -> Sample:
    """Draws of the normal approximation at the mode, as it is."""
    del model, target, size
    noise = np.random.default_rng(seed).normal(size=(NUM_PARTICLES, len(start.centre)))
    return Sample(start.centre + noise @ start.root.T, 0.0, 0.0)


def langevin(
    model: MinibatchModel,
    target: nvgd.Target,
    start: Start,
    size: float,
    seed: int,
    *,
    preconditioned: bool,
) -> Sample:
    """SGLD, with the covariance or its smallest eigenvalue as the unit of step sizes."""
    del model
    covariance = np.float64(start.root) @ np.float64(start.root).T
    flow = nvgd.SGLD(size * float(np.linalg.eigvalsh(covariance)[0]))
    if preconditioned:
        flow = nvgd.ParticleFlow(Preconditioned(covariance), Langevin(), Euler(size))
    started = time.process_time()
    found = nvgd.sample(
        target, flow, initial=start.particles, num_steps=NUM_STEPS, seed=seed, progress=False
    )
    return _of_batches(found.particles, started)


def sghmc(
    model: MinibatchModel, target: nvgd.Target, start: Start, size: float, seed: int
) -> Sample:
    """BlackJAX's SGHMC, in coordinates that the covariance whitens."""
    import blackjax  # pyright: ignore[reportMissingImports]

    del model
    centre, root = jnp.asarray(start.centre), jnp.asarray(start.root)

    def gradient(u: Array, rows: Array) -> Array:
        return jax.grad(lambda u: target.log_density(centre + root @ u, target.batch(rows)))(u)

    algorithm = blackjax.sghmc(gradient, NUM_LEAPFROG)

    @jax.jit
    def run(state: Array, keys: Array) -> Array:
        def step(state: Array, key: Array) -> tuple[Array, None]:
            rows_key, own = jax.random.split(key)
            rows = jax.random.choice(rows_key, target.num_rows, (BATCH_SIZE,))
            move = functools.partial(algorithm.step, minibatch=rows, step_size=size)
            own_keys = jax.random.split(own, NUM_PARTICLES)
            return jax.vmap(lambda key, u: move(key, u))(own_keys, state), None

        return jax.lax.scan(step, state, keys)[0]

    started = time.process_time()
    keys = jax.random.split(jax.random.key(seed), NUM_STEPS // NUM_LEAPFROG)
    final = run(jnp.zeros((NUM_PARTICLES, target.dim)), keys)
    return _of_batches(centre + final @ root.T, started)


def svi(model: MinibatchModel, target: nvgd.Target, start: Start, rate: float, seed: int) -> Sample:
    """NumPyro's SVI with a full-rank normal guide and subsampling (full-rank ADVI)."""
    import numpyro  # pyright: ignore[reportMissingImports]
    import numpyro.distributions as dist  # pyright: ignore[reportMissingImports]
    from numpyro.infer import SVI, Trace_ELBO  # pyright: ignore[reportMissingImports]
    from numpyro.infer.autoguide import (  # pyright: ignore[reportMissingImports]
        AutoMultivariateNormal,
    )
    from numpyro.infer.initialization import (  # pyright: ignore[reportMissingImports]
        init_to_value,
    )

    del model
    centre, root = jnp.asarray(start.centre), jnp.asarray(start.root)

    def density() -> None:
        space = dist.constraints.real_vector
        theta = centre + root @ numpyro.sample("u", dist.ImproperUniform(space, (), (target.dim,)))
        with numpyro.plate("rows", target.num_rows, subsample_size=BATCH_SIZE) as rows:
            numpyro.factor("likelihood", target.log_likelihoods(theta, target.batch(rows)))
        numpyro.factor("prior", target.log_prior(target.structure(theta)))

    first = init_to_value(values={"u": jnp.zeros(target.dim)})
    guide = AutoMultivariateNormal(density, init_loc_fn=first)
    started = time.process_time()
    fitted = SVI(density, guide, numpyro.optim.Adam(rate), Trace_ELBO())
    found = fitted.run(jax.random.key(seed), NUM_STEPS, progress_bar=False)
    shape = (NUM_PARTICLES,)
    draws = guide.sample_posterior(jax.random.key(seed + 1), found.params, sample_shape=shape)
    seconds = time.process_time() - started
    work = float(NUM_STEPS * BATCH_SIZE)
    return Sample(np.asarray(centre + draws["u"] @ root.T), work, seconds)


def nuts(
    model: MinibatchModel, target: nvgd.Target, start: Start, size: float, seed: int
) -> Sample:
    """NumPyro's NUTS on all rows, one chain, in coordinates that the mode's curvature whitens."""
    from numpyro.infer import MCMC, NUTS  # pyright: ignore[reportMissingImports]

    del target, start
    posterior = model.posterior()
    easy = posterior.easy
    assert easy is not None
    with double_precision():
        kernel = NUTS(
            potential_fn=lambda z: -posterior.log_density(easy.restore(z)),
            dense_mass=True,
            target_accept_prob=size,
        )
        started = time.process_time()
        mcmc = MCMC(kernel, num_warmup=NUTS_WARMUP, num_samples=NUTS_KEPT, progress_bar=False)
        key, at_mode = jax.random.key(seed), jnp.zeros(model.dim)
        mcmc.warmup(key, init_params=at_mode, extra_fields=("num_steps",), collect_warmup=True)
        number = float(mcmc.get_extra_fields()["num_steps"].sum())
        mcmc.run(key, extra_fields=("num_steps",))
        number += float(mcmc.get_extra_fields()["num_steps"].sum())
        states = np.asarray(jax.vmap(easy.restore)(mcmc.get_samples()))
    chosen = np.linspace(0, len(states) - 1, NUM_PARTICLES).round().astype(int)
    return Sample(states[chosen], number * model.num_rows, time.process_time() - started)


def _of_batches(positions: Array | np.ndarray, started: float) -> Sample:
    found = np.asarray(positions)
    work = float(NUM_STEPS * BATCH_SIZE * len(found))
    return Sample(found, work, time.process_time() - started)


SGLD = functools.partial(langevin, preconditioned=False)
PRECONDITIONED = functools.partial(langevin, preconditioned=True)

# Name → method, its settings, and whether the target has control variates of first order.
RIVALS: dict[str, tuple[Rival, tuple[float, ...], bool]] = {
    "normal approximation": (normal, (1.0,), False),
    "SGLD": (SGLD, STEP_SIZES, False),
    "SGLD, control variates": (SGLD, STEP_SIZES, True),
    "preconditioned SGLD": (PRECONDITIONED, STEP_SIZES, False),
    "preconditioned SGLD, control variates": (PRECONDITIONED, STEP_SIZES, True),
    "SGHMC": (sghmc, STEP_SIZES, False),
    "SGHMC, control variates": (sghmc, STEP_SIZES, True),
    "full-rank SVI": (svi, RATES, False),
    "NUTS on all rows": (nuts, (NUTS_ACCEPT,), False),
}
