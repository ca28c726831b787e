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
    particles = _flattened(target, initial)
    if num_particles is not None and num_particles != len(particles):
        raise InputError(
            f"initial holds {len(particles)} particles but num_particles is {num_particles}: "
            "leave num_particles out."
        )
    return particles


def _flattened(target: Target, initial: PyTree) -> Float[Array, "n d"]:
    """The user's particles as one array, if they fit the target's positions."""
    flat = jax.ShapeDtypeStruct((target.dim,), jnp.zeros(()).dtype)
    like = jax.eval_shape(target.structure, flat)
    wanted = f"an array (num_particles, {target.dim})"
    if target.unravel is not None:
        shapes = jax.tree.map(lambda leaf: ("num_particles", *leaf.shape), like)
        wanted += f" or a pytree of arrays with shapes {shapes}"
    try:
        if jax.tree.structure(like) == jax.tree.structure(0) and not isinstance(initial, dict):
            initial = np.asarray(initial)
        if target.unravel is not None and (jax.tree.structure(initial) == jax.tree.structure(like)):
            arrays = jax.tree.map(jnp.asarray, initial)
            leaves = jax.tree.leaves(arrays)
            trailing = [leaf.shape[1:] for leaf in leaves]
            if trailing == [leaf.shape for leaf in jax.tree.leaves(like)] and all(
                leaf.ndim and len(leaf) == len(leaves[0]) for leaf in leaves
            ):
                initial = jax.vmap(lambda position: ravel_pytree(position)[0])(arrays)
        if isinstance(initial, dict):
            raise TypeError("a dictionary")
        particles = jnp.asarray(initial)
    except (TypeError, ValueError):
        found = jax.tree.map(np.shape, initial)
        raise InputError(f"initial must be {wanted}, got shapes {found}.") from None
    if particles.ndim != 2 or particles.shape[1] != target.dim or not len(particles):
        raise InputError(f"initial must be {wanted}, got shape {particles.shape}.")
    if jnp.issubdtype(particles.dtype, jnp.integer):
        particles = particles.astype(jnp.zeros(()).dtype)
    if not jnp.issubdtype(particles.dtype, jnp.floating):
        raise InputError(f"initial must hold real numbers, got {particles.dtype}.")
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
