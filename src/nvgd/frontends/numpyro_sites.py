"""What a NumPyro model consists of: read once, with the model's own arguments."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nvgd.errors import InputError, first_line


class Sites(NamedTuple):
    """Names and shapes of a model's sites; tuples alone, so that it can be hashed."""

    unconstrained: tuple[tuple[str, tuple[int, ...]], ...]
    """Latent sites, with their shapes in unconstrained space."""
    output: tuple[str, ...]
    """Latent and deterministic sites."""
    observed: tuple[str, ...]
    factors: tuple[str, ...]
    dims: tuple[tuple[str, tuple[str, ...]], ...]
    plates: tuple[tuple[str, int], ...]
    subsampled: str | None
    """The plate that is seen in minibatches."""
    num_rows: int
    batch_size: int


def over_rows(
    function: Callable, plate: str, rows: Array | None, *, is_masked: bool = False
) -> Callable:
    """The model with these rows in the plate (None: all), unscaled; masked: without their terms."""
    from numpyro.primitives import Messenger

    class Rows(Messenger):
        def process_message(self, msg: Any) -> None:
            if msg["type"] == "plate" and msg["name"] == plate:
                size = msg["args"][0]
                msg["value"] = jnp.arange(size) if rows is None else rows
                msg["args"] = (size, len(msg["value"]))
                self.factor = size / len(msg["value"])
            elif msg["type"] == "sample" and plate in _frames(msg):
                if is_masked:
                    msg["fn"] = msg["fn"].mask(False)
                elif self.factor != 1:
                    # The library scales by N/B itself.
                    msg["scale"] = msg["scale"] / self.factor

    return Rows(function)


def read_sites(model: Callable, args: tuple, kwargs: dict[str, Any]) -> Sites:
    """Trace the model once and look at its sites; refuses what cannot be followed by gradients."""
    from numpyro import handlers

    found: list[Sites | Exception] = []

    def look(key: Array) -> None:
        try:
            trace = handlers.trace(handlers.seed(model, key)).get_trace(*args, **kwargs)
            found.append(_sites(trace))
        except Exception as error:
            found.append(error)  # raised outside, without what JAX would add to it

    # Shapes are all that is wanted: nothing is drawn or compiled.
    jax.eval_shape(look, jax.random.key(0))
    sites = found[0]
    if isinstance(sites, InputError):
        raise sites
    if isinstance(sites, Exception):
        raise InputError(
            f"the NumPyro model could not be run with these arguments: {first_line(sites)}"
        ) from sites
    if sites.subsampled is not None:
        _check_rows(model, args, kwargs, sites)
    return sites


def _sites(trace: dict[str, Any]) -> Sites:
    from numpyro.distributions import Unit, biject_to

    samples = {name: site for name, site in trace.items() if site["type"] == "sample"}
    latent = {name: site for name, site in samples.items() if not site["is_observed"]}
    factors = {name for name, site in samples.items() if isinstance(_base(site["fn"]), Unit)}
    observed = {n: site for n, site in samples.items() if n not in latent and n not in factors}
    _check_latent(latent)
    _check_observed(observed)
    plates = {name: site for name, site in trace.items() if site["type"] == "plate"}
    subsampled = _subsampled_plate(plates, latent)
    deterministic = {
        name: site
        for name, site in trace.items()
        if site["type"] == "deterministic" and subsampled not in _frames(site)
    }
    unconstrained = {}
    for name, site in latent.items():
        try:
            flat = biject_to(site["fn"].support).inv(site["value"])
        except NotImplementedError:
            raise InputError(
                f"the support of site {name!r}, {site['fn'].support}, has no map to unconstrained "
                "space in NumPyro: reparametrise it."
            ) from None
        unconstrained[name] = jnp.shape(flat)
    shown = {**latent, **deterministic, **observed}
    size, batch_size = plates[subsampled]["args"] if subsampled is not None else (0, 0)
    return Sites(
        unconstrained=tuple(sorted(unconstrained.items())),
        output=(*latent, *deterministic),
        observed=tuple(observed),
        factors=tuple(factors),
        dims=tuple((name, _axes(name, site)) for name, site in shown.items()),
        plates=tuple((name, int(site["args"][0])) for name, site in plates.items()),
        subsampled=subsampled,
        num_rows=int(size),
        batch_size=int(batch_size),
    )


def _frames(site: Any) -> set[str]:
    return {frame.name for frame in site["cond_indep_stack"]}


def _base(distribution: Any) -> Any:
    """What a plate, mask or handler has wrapped."""
    while hasattr(distribution, "base_dist"):
        distribution = distribution.base_dist
    return distribution


def _check_latent(latent: dict[str, Any]) -> None:
    if not latent:
        raise InputError(
            "the NumPyro model has no latent variable to sample: every numpyro.sample in it is "
            "observed."
        )
    discrete = [name for name, site in latent.items() if site["fn"].support.is_discrete]
    if discrete:
        raise InputError(
            f"discrete latent variables cannot follow a gradient, and {', '.join(discrete)} "
            "is discrete: sum it out, for instance with numpyro.distributions.MixtureSameFamily."
        )


def _check_observed(observed: dict[str, Any]) -> None:
    for name, site in observed.items():
        given, made = np.shape(site["value"]), site["fn"].shape()
        try:
            fits = np.broadcast_shapes(given, made) in (given, made)
        except ValueError:
            fits = False
        if not fits:
            raise InputError(
                f"the data of site {name!r} have shape {given} but the model makes them of shape "
                f"{made}: pass data of the same length."
            )


def _subsampled_plate(plates: dict[str, Any], latent: dict[str, Any]) -> str | None:
    subsampled = [name for name, s in plates.items() if s["args"][1] not in (None, s["args"][0])]
    if len(subsampled) > 1:
        raise InputError(
            f"only one plate can be seen in minibatches, and {', '.join(subsampled)} have a "
            "subsample_size: leave it out of the others."
        )
    if not subsampled:
        return None
    inside = [name for name, site in latent.items() if subsampled[0] in _frames(site)]
    if inside:
        raise InputError(
            f"the latent variable {', '.join(inside)} lies in the subsampled plate "
            f"{subsampled[0]!r}, so that most of it would be out of sight at every step: leave "
            "subsample_size out of this plate."
        )
    return subsampled[0]


def _check_rows(model: Callable, args: tuple, kwargs: dict[str, Any], sites: Sites) -> None:
    """Refuse data that are shorter than their plate.

    JAX clamps an index out of range and would repeat the last row in silence; NumPy refuses it.
    """
    from numpyro import handlers

    assert sites.subsampled is not None
    last_rows = jnp.arange(sites.num_rows - sites.batch_size, sites.num_rows)
    last = handlers.seed(over_rows(model, sites.subsampled, last_rows), jax.random.key(0))
    args, kwargs = jax.tree.map(
        lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, (args, kwargs)
    )
    try:
        last(*args, **kwargs)
    except IndexError as error:
        raise InputError(
            f"the data are shorter than the plate {sites.subsampled!r}, which has "
            f"{sites.num_rows} rows: {first_line(error)}"
        ) from error
    except Exception:  # a model that needs JAX's arrays is checked by JAX alone
        return


def _axes(name: str, site: Any) -> tuple[str, ...]:
    """A name for every axis of the site's value: its plates', or numbered ones."""
    shape = np.shape(site["value"])
    axes = [f"{name}_dim_{i}" for i in range(len(shape))]
    num_event_axes = site["fn"].event_dim if site["type"] == "sample" else 0
    for frame in site["cond_indep_stack"]:
        axis = len(shape) - num_event_axes + frame.dim
        if 0 <= axis < len(shape) and shape[axis] == frame.size:
            axes[axis] = frame.name
    return tuple(axes)
