"""Rivals in minibatches, each with the best of a few settings in hindsight.

All have as many steps, particles and rows per step, and start from a normal approximation at the
mode of all data, which is also their preconditioner; the time to find it is not counted.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import nvgd
from benchmarks.minibatches.model import BATCH_SIZE, MinibatchModel
from nvgd.flow.coordinates.preconditioners import Preconditioned
from nvgd.flow.directions.langevin import Langevin
from nvgd.flow.movers.plain import Euler
from nvgd.running.pathfinder import Laplace

NUM_STEPS = 4000
NUM_PARTICLES = 256
# Step sizes in units in which the mode's covariance is the identity; learning rates of SVI.
STEP_SIZES = (1e-3, 1e-2, 0.1)
RATES = (1e-3, 1e-2)
# Leapfrog steps per step of SGHMC.
NUM_LEAPFROG = 10

Particles = Float[np.ndarray, "n d"]
Rival = Callable[[MinibatchModel, nvgd.Target, float, int], Particles]


def _covariance(target: nvgd.Target) -> Float[np.ndarray, "d d"]:
    """Covariance of the normal approximation at the mode of all data."""
    start = Laplace().prepared(target, jax.random.key(0))
    draws = np.asarray(start.draw(target, 20_000, jax.random.key(1)), np.float64)
    return np.cov(draws.T).reshape(target.dim, target.dim)


def langevin(
    model: MinibatchModel, target: nvgd.Target, size: float, seed: int, *, preconditioned: bool
) -> Particles:
    """SGLD, with the covariance or its smallest eigenvalue as the unit of step sizes."""
    del model
    covariance = _covariance(target)
    flow = nvgd.SGLD(size * float(np.linalg.eigvalsh(covariance)[0]))
    if preconditioned:
        flow = nvgd.ParticleFlow(Preconditioned(covariance), Langevin(), Euler(size))
    options = {"num_particles": NUM_PARTICLES, "num_steps": NUM_STEPS, "seed": seed}
    found = nvgd.sample(target, flow, initial="laplace", progress=False, **options)
    return np.asarray(found.particles)


def sghmc(model: MinibatchModel, target: nvgd.Target, size: float, seed: int) -> Particles:
    """BlackJAX's SGHMC, in coordinates that the covariance whitens."""
    import blackjax  # pyright: ignore[reportMissingImports]

    del model
    root = jnp.asarray(np.linalg.cholesky(_covariance(target)), jnp.float32)
    starts = Laplace().prepared(target, jax.random.key(0))
    particles = starts.draw(target, NUM_PARTICLES, jax.random.key(seed))
    centre = jnp.mean(particles, axis=0)
    whitened = jax.scipy.linalg.solve_triangular(root, (particles - centre).T, lower=True).T

    def gradient(u: Array, rows: Array) -> Array:
        return jax.grad(lambda u: target.log_density(centre + root @ u, target.batch(rows)))(u)

    algorithm = blackjax.sghmc(gradient, NUM_LEAPFROG)

    @jax.jit
    def step(state: Array, key: Array) -> tuple[Array, None]:
        rows_key, own = jax.random.split(key)
        rows = jax.random.choice(rows_key, target.num_rows, (BATCH_SIZE,))
        keys = jax.random.split(own, NUM_PARTICLES)
        move = functools.partial(algorithm.step, minibatch=rows, step_size=size)
        return jax.vmap(lambda key, u: move(key, u))(keys, state), None

    keys = jax.random.split(jax.random.key(seed + 1), NUM_STEPS // NUM_LEAPFROG)
    final, _ = jax.lax.scan(step, whitened, keys)
    return np.asarray(centre + final @ root.T)


def svi(model: MinibatchModel, target: nvgd.Target, rate: float, seed: int) -> Particles:
    """NumPyro's SVI with a full-rank normal guide and subsampling (full-rank ADVI)."""
    import numpyro  # pyright: ignore[reportMissingImports]
    import numpyro.distributions as dist  # pyright: ignore[reportMissingImports]
    from numpyro.infer import SVI, Trace_ELBO  # pyright: ignore[reportMissingImports]
    from numpyro.infer.autoguide import (  # pyright: ignore[reportMissingImports]
        AutoMultivariateNormal,
    )

    del model
    whole = jnp.arange(target.num_rows)

    def density() -> None:
        space = dist.constraints.real_vector
        theta = numpyro.sample("theta", dist.ImproperUniform(space, (), (target.dim,)))
        with numpyro.plate("rows", target.num_rows, subsample_size=BATCH_SIZE) as rows:
            batch = target.batch(whole[rows])
            scaled = target.log_likelihoods(theta, batch)
            numpyro.factor("likelihood", scaled)
        numpyro.factor("prior", target.log_prior(target.structure(theta)))

    guide = AutoMultivariateNormal(density)
    # A step evaluates as many gradients as one particle does in a batch of all of them.
    loss = Trace_ELBO(num_particles=16)
    fitted = SVI(density, guide, numpyro.optim.Adam(rate), loss)
    found = fitted.run(jax.random.key(seed), NUM_STEPS, progress_bar=False)
    draws = guide.sample_posterior(
        jax.random.key(seed + 1), found.params, sample_shape=(NUM_PARTICLES,)
    )
    return np.asarray(draws["theta"])


SGLD = functools.partial(langevin, preconditioned=False)
PRECONDITIONED = functools.partial(langevin, preconditioned=True)

# Name → method, its settings, and whether the target has control variates of first order.
RIVALS: dict[str, tuple[Rival, tuple[float, ...], bool]] = {
    "SGLD": (SGLD, STEP_SIZES, False),
    "SGLD, control variates": (SGLD, STEP_SIZES, True),
    "preconditioned SGLD, control variates": (PRECONDITIONED, STEP_SIZES, True),
    "SGHMC, control variates": (sghmc, STEP_SIZES, True),
    "full-rank SVI": (svi, RATES, False),
}
