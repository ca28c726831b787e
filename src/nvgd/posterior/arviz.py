"""A posterior in the form that the installed ArviZ takes."""

import importlib.metadata
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from nvgd._support.errors import InputError, optional_import
from nvgd._support.version import __version__
from nvgd.targets.models import Labels
from nvgd.targets.positions import leaf_name
from nvgd.targets.target import Target

# Log likelihoods of data rows are omitted if particles × rows exceeds this number.
MAX_LOG_LIKELIHOODS = 10**8

# Group → variable → values.
Groups = dict[str, dict[str, Any]]


def to_arviz(
    draws: Mapping[str, Array],
    log_densities: Float[np.ndarray, " n"] | None,
    target: Target | None,
    particles: Float[Array, "n d"],
    *,
    by_chain: Callable[[Any], Any],
    labels: Labels,
    attributes: Mapping[str, Any],
    seed: int | None,
) -> Any:
    """See `Posterior.to_arviz`.

    ArviZ's files cannot hold names with a slash, as NumPyro's `scope` creates them: `a/x`
    becomes `a.x`.

    Arguments:
        draws: draws (chain, draw, …).
        log_densities, particles: log densities and positions of the draws, chain after chain.
        by_chain: reshapes values of the draws to leading axes (chain, draw).
        attributes: facts about the run.
        seed: seed of the predictions; None for no predictions.
    """
    groups: Groups = {}
    if log_densities is not None:
        groups["sample_stats"] = {"lp": log_densities}
    observed: dict[str, np.ndarray] = {}
    if target is not None:
        from_model, observed = _from_model(target, particles, draws, seed)
        groups |= from_model
    data = {"posterior": {_without_slash(name): np.asarray(x) for name, x in draws.items()}}
    data |= {
        group: {_without_slash(name): by_chain(np.asarray(x)) for name, x in values.items()}
        for group, values in groups.items()
        if values
    }
    if observed:
        data["observed_data"] = {_without_slash(name): value for name, value in observed.items()}
    dims = {
        _without_slash(name): [_without_slash(axis) for axis in axes]
        for name, axes in labels.dims.items()
    }
    coords = {_without_slash(name): list(values) for name, values in labels.coords.items()}
    attributes = {
        "inference_library": "nvgd",
        "inference_library_version": __version__,
        **attributes,
    }
    convert = _inference_data if _installed_line() == 0 else _data_tree
    return convert(data, dims, coords, attributes)


def _without_slash(name: str) -> str:
    return name.replace("/", ".")


def _installed_line() -> int:
    """0 if ArviZ 0.x is installed; 1 for ArviZ 1.x, or for `arviz-base` alone."""
    try:
        major = importlib.metadata.version("arviz").partition(".")[0]
    except importlib.metadata.PackageNotFoundError:
        return 1
    return min(int(major), 1)


def _inference_data(data: Groups, dims: Any, coords: Any, attributes: dict[str, Any]) -> Any:
    """An `arviz.InferenceData`, for ArviZ 0.x."""
    arviz = optional_import("arviz", "arviz", "to_arviz")
    with warnings.catch_warnings():
        # A thinned run has one chain per particle, so more chains than draws are no mistake.
        warnings.filterwarnings("ignore", message="More chains")
        return arviz.from_dict(**data, dims=dims, coords=coords, posterior_attrs=attributes)


def _data_tree(data: Groups, dims: Any, coords: Any, attributes: dict[str, Any]) -> Any:
    """An `xarray.DataTree`, for ArviZ 1.x."""
    arviz_base = optional_import("arviz_base", "arviz", "to_arviz")
    return arviz_base.from_dict(
        data,
        dims=dims,
        coords=coords,
        attrs={"posterior": attributes},
        check_conventions=False,  # more chains than draws, as above
    )


def _from_model(
    target: Target, particles: Float[Array, "n d"], draws: Mapping[str, Array], seed: int | None
) -> tuple[Groups, dict[str, np.ndarray]]:
    """Log likelihoods and predictions, and the observed data; empty where the model has none."""
    positions = jax.vmap(target.structure)(particles)
    log_likelihoods = target.model.log_likelihoods(positions)
    observed = target.model.observed() or {}
    if log_likelihoods is None:
        log_likelihoods, observed = _from_rows(target, positions)
    predicted = None
    if seed is not None:
        predicted = target.model.predict(jax.random.key(seed), positions)
    # NumPyro predicts deterministic sites too; the posterior has them already.
    new = {name: value for name, value in (predicted or {}).items() if name not in draws}
    for name in new.keys() & observed.keys():
        now, then = np.shape(new[name])[1:], observed[name].shape
        if now != then:
            raise InputError(
                f"the model now predicts {name!r} with shape {now}, but was fitted to data of "
                f"shape {then}, as after pymc.set_data: pass to_arviz(predictive=False), or set "
                "the data back."
            )
    return {"log_likelihood": log_likelihoods, "posterior_predictive": new}, observed


def _from_rows(target: Target, positions: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Log likelihood of every data row, and the rows, of a target that has data itself."""
    likelihood = target.log_likelihood
    data = None if target.data is None else target.data.rows
    num = len(jax.tree.leaves(positions)[0])
    if likelihood is None or data is None or num * target.num_rows > MAX_LOG_LIKELIHOODS:
        return {}, {}
    of_rows = likelihood if target.vectorised else jax.vmap(likelihood, in_axes=(None, 0))
    values = jax.jit(lambda at: jax.lax.map(lambda x: of_rows(x, data), at))(positions)
    leaves, _ = jax.tree_util.tree_flatten_with_path(data)
    return {"row": values}, {leaf_name(path, "data"): np.asarray(leaf) for path, leaf in leaves}
