"""A posterior as ArviZ's DataTree."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import nvgd
from nvgd.data import AbstractHostData
from nvgd.errors import optional_import
from nvgd.target import Target

if TYPE_CHECKING:
    from nvgd.posterior import Posterior

# Log likelihoods of more values than these, particles times data, are left out.
MAX_VALUES = 10**8


def to_arviz(posterior: "Posterior", *, predictive: bool, seed: int) -> Any:
    """See `Posterior.to_arviz`."""
    arviz_base = optional_import("arviz_base", "arviz", "to_arviz")
    num_kept = posterior.num_kept

    def by_chain(value: Any) -> np.ndarray:
        """Leading axes chain and draw: one chain of particles, or a chain for each of them."""
        array = np.asarray(value)
        if num_kept == 1:
            return array[None]
        return np.swapaxes(array.reshape(num_kept, -1, *array.shape[1:]), 0, 1)

    groups: dict[str, dict[str, Any]] = {
        "posterior": posterior.draws,
        "sample_stats": {"lp": posterior.log_densities_and_scores[0]},
    }
    observed: dict[str, np.ndarray] = {}
    if posterior.target is not None:
        positions = jax.vmap(posterior.target.structure)(posterior.particles)
        log_likelihoods = posterior.target.model.log_likelihoods(positions)
        observed = posterior.target.model.observed() or {}
        if log_likelihoods is None:
            log_likelihoods, observed = _from_rows(posterior.target, positions)
        groups["log_likelihood"] = log_likelihoods
        predicted = None
        if predictive:
            key = jax.random.key(seed)
            predicted = posterior.target.model.predict(key, positions)
        # A model's deterministic sites are in the posterior already.
        groups["posterior_predictive"] = {
            name: value for name, value in (predicted or {}).items() if name not in posterior.draws
        }
    data: dict[str, dict[str, Any]] = {
        group: {name: by_chain(value) for name, value in values.items()}
        for group, values in groups.items()
        if values
    }
    if observed:
        data["observed_data"] = observed
    dims, coords = posterior.labels
    attributes = {
        "inference_library": "nvgd",
        "inference_library_version": nvgd.__version__,
        "method": posterior.method,
        "num_steps": posterior.num_steps,
        "status": posterior.status,
    }
    return arviz_base.from_dict(
        data,
        dims={name: list(axes) for name, axes in dims.items()},
        coords={name: list(values) for name, values in coords.items()},
        attrs={"posterior": attributes},
        # More chains than draws, as in a thinned run of many particles, are no mistake here.
        check_conventions=False,
    )


def _from_rows(target: Target, positions: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Log likelihood of every data row, and the rows, of a target with data of its own."""
    likelihood = target.log_likelihood
    num = len(jax.tree.leaves(positions)[0])
    if likelihood is None or isinstance(target.data, AbstractHostData):
        return {}, {}
    if num * target.num_rows > MAX_VALUES:
        return {}, {}
    rows = likelihood if target.vectorised else jax.vmap(likelihood, in_axes=(None, 0))
    values = jax.jit(lambda at: jax.lax.map(lambda x: rows(x, target.data), at))(positions)
    leaves, _ = jax.tree_util.tree_flatten_with_path(target.data)
    data = {
        jax.tree_util.keystr(path, simple=True, separator=".") or "data": np.asarray(leaf)
        for path, leaf in leaves
    }
    return {"row": values}, data
