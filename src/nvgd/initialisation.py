"""Where particles start, and whether they can."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from nvgd.errors import InputError, check_count
from nvgd.target import Target

DEFAULT_NUM_PARTICLES = 100


def starting_particles(
    target: Target, initial: PyTree, num_particles: int | None, key: PRNGKeyArray
) -> Float[Array, "n d"]:
    """The particles to start from, as one array: the user's, or draws from N(0, I)."""
    if num_particles is not None:
        check_count("num_particles", num_particles)
    if initial is None:
        return jax.random.normal(key, (num_particles or DEFAULT_NUM_PARTICLES, target.dim))
    try:
        leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(initial)]
        if target.unravel is not None and not isinstance(initial, jax.Array | np.ndarray):
            particles = jax.vmap(lambda position: ravel_pytree(position)[0])(initial)
        else:
            (particles,) = leaves
    except (TypeError, ValueError) as error:
        raise InputError(
            f"initial must be an array (num_particles, {target.dim}) or a pytree like example with "
            f"a leading axis of particles: {error}"
        ) from error
    if particles.ndim != 2 or particles.shape[1] != target.dim:
        raise InputError(
            f"initial must have shape (num_particles, {target.dim}), got {particles.shape}."
        )
    if num_particles is not None and num_particles != len(particles):
        raise InputError(
            f"initial holds {len(particles)} particles but num_particles is {num_particles}: "
            "leave num_particles out."
        )
    if not jnp.issubdtype(particles.dtype, jnp.floating):
        particles = particles.astype(jnp.zeros(()).dtype)
    return particles


@eqx.filter_jit
def _num_faulty(target: Target, particles: Array, rows: Array | None) -> Array:
    batch = None if rows is None else target.batch(rows)
    log_densities, scores = target.log_densities_and_scores(particles, batch)
    is_good = jnp.isfinite(log_densities) & jnp.all(jnp.isfinite(scores), axis=-1)
    return jnp.sum(~is_good)


def num_faulty(target: Target, particles: Array, rows: np.ndarray | None) -> int:
    """Particles at which log density or score is not finite, on one batch if there are batches."""
    return int(_num_faulty(target, particles, None if rows is None else jnp.asarray(rows)))


def check_start(target: Target, particles: Array, rows: np.ndarray | None) -> None:
    """Refuse a start at which the log density cannot be followed; `rows` make up one batch."""
    if not bool(jnp.all(jnp.isfinite(particles))):
        raise InputError("initial must hold finite numbers only, got NaN or infinity among them.")
    faulty = num_faulty(target, particles, rows)
    if faulty:
        raise InputError(
            f"the log density or its gradient is not finite at {faulty} of {len(particles)} "
            "starting particles: pass initial= with positions inside its support, or write it in "
            "unconstrained coordinates (log of a scale, logit of a probability)."
        )
