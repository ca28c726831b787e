"""Where particles start, and whether they can."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from nvgd.compilation import compiled
from nvgd.errors import InputError, check_choice, check_count
from nvgd.laplace import Laplace
from nvgd.starts import AbstractStart, OwnStart, PriorStart, flatten
from nvgd.target import Target

DEFAULT_NUM_PARTICLES = 100

# Draws of a start before it is given up; as many as NumPyro allows.
MAX_TRIES = 100

STARTS: dict[str, AbstractStart] = {"prior": PriorStart(), "laplace": Laplace()}


def starting_particles(
    target: Target,
    initial: PyTree | AbstractStart | str,
    num_particles: int | None,
    taken: PyTree,
    key: PRNGKeyArray,
) -> Float[Array, "n d"]:
    """The particles to start from: the user's, or draws at which the log density is finite.

    Arguments:
        taken: one step's share of `Target.batches`, on which the log density is tried.
    """
    if num_particles is not None:
        check_count("num_particles", num_particles)
    if initial is None:
        initial = OwnStart()
    if isinstance(initial, str):
        check_choice("initial", initial, STARTS)
        initial = STARTS[initial]
    if isinstance(initial, AbstractStart):
        return _feasible(target, initial, num_particles or DEFAULT_NUM_PARTICLES, taken, key)
    particles = flatten(target, initial)
    if num_particles is not None and num_particles != len(particles):
        raise InputError(
            f"initial holds {len(particles)} particles but num_particles is {num_particles}: "
            "leave num_particles out."
        )
    if not bool(jnp.all(jnp.isfinite(particles))):
        raise InputError("initial must hold finite numbers only, got NaN or infinity among them.")
    num_faulty = int(jnp.sum(is_faulty(target, particles, taken)))
    if num_faulty:
        raise InputError(_no_start(num_faulty, len(particles)))
    return particles


def _feasible(
    target: Target, start: AbstractStart, num: int, taken: PyTree, key: PRNGKeyArray
) -> Float[Array, "n d"]:
    """Draws of `start`, repeated for those particles at which the log density is not finite."""
    start = start.prepared(target, key)
    particles = start.draw(target, num, key)
    for attempt in range(1, MAX_TRIES):
        faulty = is_faulty(target, particles, taken)
        if not bool(jnp.any(faulty)):
            return particles
        again = start.draw(target, num, jax.random.fold_in(key, attempt))
        particles = jnp.where(faulty[:, None], again, particles)
    num_faulty = int(jnp.sum(is_faulty(target, particles, taken)))
    if num_faulty:
        raise InputError(_no_start(num_faulty, num, f", after {MAX_TRIES} draws of each"))
    return particles


def check_apart(particles: Float[Array, "n d"]) -> None:
    """Refuse particles most of which are in one place, which no flow without noise can leave."""
    _, counts = np.unique(np.asarray(particles), axis=0, return_counts=True)
    if len(particles) > 1 and 2 * counts.max() > len(particles):
        raise InputError(
            f"initial holds {counts.max()} of {len(particles)} particles in one place, and without "
            "noise they would move as one: pass nvgd.Jittered(position), or draws around it."
        )


def _no_start(num_faulty: int, num: int, tried: str = "") -> str:
    return (
        f"the log density or its gradient is not finite at {num_faulty} of {num} starting "
        f"particles{tried}: pass initial= with positions inside its support, or write it in "
        "unconstrained coordinates (log of a scale, logit of a probability)."
    )


@compiled
def _is_faulty(target: Target, particles: Array, taken: PyTree) -> Array:
    batch = None if taken is None else target.batch(taken)
    log_densities, scores = target.log_densities_and_scores(particles, batch)
    is_good = jnp.isfinite(log_densities) & jnp.all(jnp.isfinite(scores), axis=-1)
    return ~(is_good & jnp.all(jnp.isfinite(particles), axis=-1))


def is_faulty(target: Target, particles: Float[Array, "n d"], taken: PyTree) -> Bool[Array, " n"]:
    """Where log density or score is not finite, on one batch if there are batches."""
    return _is_faulty(target, particles, jax.tree.map(jnp.asarray, taken))
