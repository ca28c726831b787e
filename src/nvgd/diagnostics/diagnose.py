"""The way from a posterior to its diagnosis."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Float

from nvgd.diagnostics.checks import Thresholds, gather
from nvgd.diagnostics.trend import apart
from nvgd.diagnostics.verdict import MIN_PARTICLES, Diagnosis, decide, stopped, too_few
from nvgd.errors import InputError, check_count
from nvgd.recipes import known_recipe

# Coordinates whose correlation in time is looked at, at most.
MAX_WATCHED = 20

if TYPE_CHECKING:
    from nvgd.posterior import Posterior


def diagnose(posterior: "Posterior", num_replicates: int = 0) -> Diagnosis:
    """As `Posterior.diagnose`."""
    check_count("num_replicates", num_replicates, minimum=0)
    if not posterior.completed:
        return stopped(posterior.status)
    num_particles = len(posterior.particles)
    if num_particles < MIN_PARTICLES:
        return too_few(num_particles)
    particles = np.asarray(posterior.particles)
    log_densities, scores = posterior.log_densities_and_scores
    num_faulty = int(np.sum(~(np.isfinite(log_densities) & np.all(np.isfinite(scores), axis=1))))
    if num_faulty:
        return stopped(
            f"the log density or its gradient is not finite at {num_faulty} of {num_particles} "
            "particles."
        )
    rows = _independent(particles, log_densities, posterior.num_kept)
    if len(rows) < MIN_PARTICLES:
        return too_few(len(rows))
    evidence = gather(
        particles[rows],
        scores[rows],
        log_densities[rows],
        posterior.history,
        num_particles // posterior.num_kept,
        coordinate_names(posterior),
        _replicates(posterior, num_replicates),
        Thresholds(),
    )
    return decide(evidence, len(rows), posterior.num_steps, posterior.method)


def _independent(
    particles: Float[np.ndarray, "n d"], log_densities: Float[np.ndarray, " n"], num_kept: int
) -> np.ndarray:
    """Rows of states of a thinned run that lie far enough apart; all rows of any other run."""
    rows = np.arange(len(particles)).reshape(num_kept, -1)
    if num_kept == 1:
        return rows[0]
    watched = np.concatenate([log_densities[:, None], particles[:, :MAX_WATCHED]], axis=1)
    series = np.asarray(watched, np.float64).reshape(*rows.shape, -1)
    return rows[:: -apart(series)].ravel()


def _replicates(posterior: "Posterior", num: int) -> list[np.ndarray]:
    if not num:
        return []
    recipe = known_recipe(posterior.recipe, "num_replicates")
    if not recipe.can_start_anew:
        raise InputError(
            "num_replicates needs other starting particles, and this run started from particles "
            "of your own: sample with initial= one of the ways to draw them, such as "
            "Jittered(position)."
        )
    return [np.asarray(recipe.replicate(i + 1).particles) for i in range(num)]


def coordinate_names(posterior: "Posterior") -> Sequence[str]:
    """A name for every coordinate of the flat position, as the log density has them."""
    dim = posterior.particles.shape[1]
    target = posterior.target
    if target is None or (target.unravel is None and target.names is None):
        return [f"x[{i}]" for i in range(dim)]
    if target.names is not None:
        return target.names
    flat = jax.ShapeDtypeStruct((dim,), posterior.particles.dtype)
    leaves, _ = jax.tree_util.tree_flatten_with_path(jax.eval_shape(target.structure, flat))
    names = []
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "x"
        for index in np.ndindex(leaf.shape):
            names.append(name + (f"[{', '.join(map(str, index))}]" if index else ""))
    return names
