"""The sites of a NumPyro model, found by tracing it once with its own arguments."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nvgd._support.errors import InputError, first_line


class Sites(NamedTuple):
    """Names and shapes of a model's sites; nested tuples, so that it can be hashed."""

    unconstrained: tuple[tuple[str, tuple[int, ...]], ...]
    """Latent sites, with their shapes in unconstrained space."""
    output: tuple[str, ...]
    """Latent and deterministic sites."""
    undrawable: tuple[str, ...]
    """Latent sites whose distribution has no `sample` method, such as `ImproperUniform`."""
    observed: tuple[str, ...]
    factors: tuple[str, ...]
    dims: tuple[tuple[str, tuple[str, ...]], ...]
    """Sites, with the names of their axes."""
    plates: tuple[tuple[str, int], ...]
    """Plates, with their sizes."""
    subsampled: str | None
    """The subsampled plate, or None."""
    num_rows: int
    """Size of the subsampled plate, or 0."""
    batch_size: int
    """Its `subsample_size`, or 0."""

    def zeros(self) -> dict[str, Array]:
        """The origin of unconstrained space, as a position."""
        return {name: jnp.zeros(shape) for name, shape in self.unconstrained}


def read_sites(model: Callable, args: tuple, kwargs: dict[str, Any]) -> Sites:
    """The model's sites; refuses models that cannot be sampled by gradients."""
    from numpyro import handlers

    found: list[Sites | Exception] = []

    def look(key: Array) -> None:
        undrawable: set[str] = set()
        try:
            run = _seeded(model, key, undrawable)
            found.append(_sites(handlers.trace(run).get_trace(*args, **kwargs), undrawable))
        except Exception as error:
            found.append(error)  # raised below: JAX would add to its message

    # Only shapes are needed: nothing is computed or compiled.
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


def over_rows(
    function: Callable, plate: str, rows: Array | None, *, is_masked: bool = False
) -> Callable:
    """The model with its subsampled plate on given rows, without the scale N/B of the plate.

    Arguments:
        rows: indices of the rows; None for all.
        is_masked: leave out the log probabilities inside the plate.
    """
    from numpyro.primitives import Messenger

    class Rows(Messenger):
        def process_message(self, msg: Any) -> None:
            if msg["type"] == "plate" and msg["name"] == plate:
                size = msg["args"][0]
                msg["value"] = jnp.arange(size) if rows is None else rows
                msg["args"] = (size, len(msg["value"]))
                self.factor = size / len(msg["value"])
            elif msg["type"] == "sample" and plate in _plates_around(msg):
                if is_masked:
                    msg["fn"] = msg["fn"].mask(False)
                elif self.factor != 1:
                    # `Target` scales the sum over a batch itself.
                    msg["scale"] = msg["scale"] / self.factor

    return Rows(function)


def _seeded(model: Callable, key: Array, undrawable: set[str]) -> Callable:
    """The model with a value at every site: a draw, or else any value in the support.

    The names of sites that cannot be drawn are added to `undrawable`.
    """
    from numpyro import handlers
    from numpyro.infer import init_to_uniform

    def value_at(site: Any) -> Any:
        if site["type"] != "sample" or site["value"] is not None:
            return None
        key, shape = site["kwargs"]["rng_key"], site["kwargs"]["sample_shape"]
        try:
            return site["fn"](rng_key=key, sample_shape=shape)
        except NotImplementedError:
            undrawable.add(site["name"])
        _bijection(site)
        return init_to_uniform(site)

    return handlers.substitute(handlers.seed(model, key), substitute_fn=value_at)


def _sites(trace: dict[str, Any], undrawable: set[str]) -> Sites:
    from numpyro.distributions import Unit

    samples = {name: site for name, site in trace.items() if site["type"] == "sample"}
    latent = {name: site for name, site in samples.items() if not site["is_observed"]}
    factors = {name for name, site in samples.items() if isinstance(_base(site["fn"]), Unit)}
    observed = {n: site for n, site in samples.items() if n not in latent and n not in factors}
    _check_latent(latent)
    _check_observed(observed)
    plates = {name: site for name, site in trace.items() if site["type"] == "plate"}
    subsampled = _subsampled_plate(plates, latent)
    # Deterministic sites inside the subsampled plate change with the rows.
    deterministic = {
        name: site
        for name, site in trace.items()
        if site["type"] == "deterministic" and subsampled not in _plates_around(site)
    }
    unconstrained = {
        name: _bijection(site).inverse_shape(jnp.shape(site["value"]))
        for name, site in latent.items()
    }
    shown = {**latent, **deterministic, **observed}
    size, batch_size = plates[subsampled]["args"] if subsampled is not None else (0, 0)
    return Sites(
        unconstrained=tuple(sorted(unconstrained.items())),
        output=(*latent, *deterministic),
        undrawable=tuple(sorted(undrawable)),
        observed=tuple(observed),
        factors=tuple(factors),
        dims=tuple((name, _axes(name, site)) for name, site in shown.items()),
        plates=tuple((name, int(site["args"][0])) for name, site in plates.items()),
        subsampled=subsampled,
        num_rows=int(size),
        batch_size=int(batch_size),
    )


def _plates_around(site: Any) -> set[str]:
    return {frame.name for frame in site["cond_indep_stack"]}


def _base(distribution: Any) -> Any:
    """The distribution inside the wrappers that plates, masks and handlers add."""
    while hasattr(distribution, "base_dist"):
        distribution = distribution.base_dist
    return distribution


def _bijection(site: Any) -> Any:
    """NumPyro's map from unconstrained space to the support of a site."""
    from numpyro.distributions import biject_to

    try:
        return biject_to(site["fn"].support)
    except NotImplementedError:
        raise InputError(
            f"the support of site {site['name']!r}, {site['fn'].support}, has no map to "
            "unconstrained space in NumPyro: reparametrise the site."
        ) from None


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
        given, expected = np.shape(site["value"]), site["fn"].shape()
        try:
            fits = np.broadcast_shapes(given, expected) in (given, expected)
        except ValueError:
            fits = False
        if not fits:
            raise InputError(
                f"the data of site {name!r} have shape {given}, but the model's distribution has "
                f"shape {expected}: pass data of the same length."
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
    inside = [name for name, site in latent.items() if subsampled[0] in _plates_around(site)]
    if inside:
        raise InputError(
            f"the latent variable {', '.join(inside)} lies in the subsampled plate "
            f"{subsampled[0]!r}, so that a step would see only a part of it: leave subsample_size "
            "out of this plate."
        )
    return subsampled[0]


def _check_rows(model: Callable, args: tuple, kwargs: dict[str, Any], sites: Sites) -> None:
    """Refuse data that are shorter than their plate.

    JAX clamps an index out of range and would repeat the last row without an error; NumPy raises
    one.
    """
    assert sites.subsampled is not None
    last_rows = jnp.arange(sites.num_rows - sites.batch_size, sites.num_rows)
    last = _seeded(over_rows(model, sites.subsampled, last_rows), jax.random.key(0), set())
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
    except Exception:  # the model does not run on NumPy's arrays, so this check does not apply
        return


def _axes(name: str, site: Any) -> tuple[str, ...]:
    """A name for every axis of the site's value: that of its plate, or a numbered one."""
    shape = np.shape(site["value"])
    axes = [f"{name}_dim_{i}" for i in range(len(shape))]
    num_event_axes = site["fn"].event_dim if site["type"] == "sample" else 0
    for frame in site["cond_indep_stack"]:
        axis = len(shape) - num_event_axes + frame.dim
        if 0 <= axis < len(shape) and shape[axis] == frame.size:
            axes[axis] = frame.name
    return tuple(axes)
