"""Starting particles, and checks that a run can start from them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from nvgd._support.errors import InputError, check_choice, check_count
from nvgd.running.pathfinder import AnchorStart, Laplace
from nvgd.running.starts import AbstractStart, OwnStart, PriorStart
from nvgd.targets.evaluation import evaluate
from nvgd.targets.scores import Scores
from nvgd.targets.target import Target

# Particles by default, and in more than `MANY_DIMENSIONS` dimensions: there, correlations between
# coordinates could not be fitted to the larger number either, and every particle is costly.
DEFAULT_NUM_PARTICLES = 256
MANY_DIMENSIONS = 200
FEW_PARTICLES = 100

# Most draws per starting particle; the same limit as in NumPyro.
MAX_TRIES = 100
# Control variates may make scores at the start this many times as noisy as they are without.
MOST_NOISE = 2.0

STARTS: dict[str, AbstractStart] = {"prior": PriorStart(), "laplace": Laplace()}


def starting_particles(
    target: Target,
    initial: PyTree | AbstractStart | str,
    num_particles: int | None,
    taken: PyTree,
    key: PRNGKeyArray,
) -> Float[Array, "n d"]:
    """Starting particles: the user's, or draws at which the log density is finite.

    Arguments:
        target: the density to sample.
        initial: particles, a way to draw them, or None, as for `sample`.
        num_particles: number of particles, or None for the default.
        taken: one step's entry of `Target.batches`, on which the log density is checked.
        key: random key for the draws.
    """
    if num_particles is not None:
        check_count("num_particles", num_particles)
    is_chosen = initial is not None
    if initial is None:
        # Far from their anchor, control variates only add noise.
        initial = OwnStart() if target.anchor is None else AnchorStart()
    if isinstance(initial, str):
        check_choice("initial", initial, STARTS)
        initial = STARTS[initial]
    if isinstance(initial, AbstractStart):
        num = num_particles or default_num_particles(target.dim)
        particles = _feasible(target, initial, num, taken, key)
        if is_chosen:
            _check_anchor(target, particles, taken)
        return particles
    particles = target.flatten(initial)
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
    _check_anchor(target, particles, taken)
    return particles


def default_num_particles(dim: int) -> int:
    """Number of particles if none is given.

    The cost of a step hardly depends on the number below a few hundred.
    """
    return DEFAULT_NUM_PARTICLES if dim <= MANY_DIMENSIONS else FEW_PARTICLES


def _check_anchor(target: Target, particles: Float[Array, "n d"], taken: PyTree) -> None:
    """Refuse a start at which control variates increase the noise of the scores."""
    if target.anchor is None:
        return
    exact = np.asarray(target.on_all_data(particles).scores)
    batch = target.batch(jax.tree.map(jnp.asarray, taken))
    plain = eqx.tree_at(lambda t: t.anchor, target, None, is_leaf=lambda leaf: leaf is None)
    corrected_noise, plain_noise = (
        float(np.sqrt(np.mean((np.asarray(evaluate(of, particles, batch).scores) - exact) ** 2)))
        for of in (target, plain)
    )
    # Below this, both are rounding.
    least = 1e-4 * float(np.sqrt(np.mean(exact**2))) + 1e-30
    ratio = corrected_noise / max(plain_noise, least)
    if ratio > MOST_NOISE:
        raise InputError(
            "the particles start so far from the mode that control variates are held against that "
            f"scores are {ratio:.3g} times as noisy as without: leave "
            'initial out, pass initial="laplace", or use gradient="plain".'
        )


def _feasible(
    target: Target, start: AbstractStart, num: int, taken: PyTree, key: PRNGKeyArray
) -> Float[Array, "n d"]:
    """Draws of `start`, repeated for particles at which the log density is not finite."""
    start = start.prepared(target, key)
    particles = start.draw(target, num, key)
    for attempt in range(1, MAX_TRIES):
        faulty = is_faulty(target, particles, taken)
        if not faulty.any():
            return particles
        again = start.draw(target, num, jax.random.fold_in(key, attempt))
        particles = jnp.where(faulty[:, None], again, particles)
    num_faulty = int(jnp.sum(is_faulty(target, particles, taken)))
    if num_faulty:
        raise InputError(_no_start(num_faulty, num, f", after {MAX_TRIES} draws of each"))
    return particles


def check_apart(particles: Float[Array, "n d"]) -> None:
    """Refuse particles more than half of which coincide; without noise they never separate."""
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


def is_faulty(
    target: Target, particles: Float[Array, "n d"], taken: PyTree
) -> Bool[np.ndarray, " n"]:
    """Which particles have a position, log density or score that is not finite.

    Arguments:
        taken: one step's entry of `Target.batches`, or None for all data.
    """
    found = evaluate(target, particles, target.batch(jax.tree.map(jnp.asarray, taken)))
    found = Scores(*jax.device_get(found))
    return ~(found.is_finite & np.isfinite(np.asarray(particles)).all(axis=1))
