"""Neural networks as targets: a posterior over the parameters of any network."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from nvgd._support.errors import InputError
from nvgd.frontends.networks.density import BayesianNetwork
from nvgd.frontends.networks.likelihood import AbstractLikelihood
from nvgd.frontends.networks.likelihoods import as_likelihood
from nvgd.frontends.networks.model import NetworkModel, finite_rows
from nvgd.frontends.networks.modules import Apply, output_shape, take_apart
from nvgd.frontends.networks.priors import AbstractPrior, ParameterPrior, as_prior
from nvgd.frontends.networks.scaling import Scaling
from nvgd.targets.target import Target


def from_network(
    network: Any,
    *,
    data: Any,
    likelihood: AbstractLikelihood | str = "gaussian",
    prior: AbstractPrior | str = "normal",
    batch_size: int | None = None,
    parameters: PyTree = None,
    standardise: bool = True,
    particles_at_once: int | None = None,
) -> Target:
    """The posterior over the parameters of a network, as a `Target`.

        network = eqx.nn.MLP(in_size=8, out_size=1, width_size=50, depth=1, key=jax.random.key(0))
        target = nvgd.from_network(network, data=(X, y), batch_size=128)
        posterior = nvgd.sample(target)
        prediction = posterior.predict(X_new)
        prediction.mean, prediction.sd, prediction.quantiles[0.95]
        prediction.aleatoric, prediction.epistemic

    Particles start from draws of the prior, which is scaled as networks usually are initialised.

    Arguments:
        network: an Equinox module or a Flax NNX module that maps one row of X, without a batch
            axis, to its output; or a function `(parameters, row) -> output`, with `parameters`.
        data: the pair (X, y). X has axes (row, feature, …), y has one target per row, or a row of
            targets.
        likelihood: "gaussian" (with a learned noise; `networks.Gaussian(noise=…)` for a given one),
            "heteroscedastic" (the network has a second output for the noise), "categorical" (labels
            0 … K−1), "bernoulli" (labels 0 and 1) or "poisson" (counts).
        prior: "normal", "laplace" or "hierarchical" (a learned scale per parameter array), or
            `networks.Normal(scale=…)` and so on. Standard deviations follow the fan-in of a layer.
        batch_size: rows per step; all rows if omitted.
        parameters: initial parameters of a plain function, a pytree of arrays. The last axis of a
            weight counts its outputs, as in `row @ weight`.
        standardise: whether to give the network inputs with mean zero and unit variance, and
            targets likewise if they are real numbers; predictions are in the original units. Image
            pixels share one mean and variance.
        particles_at_once: evaluate networks in groups of this size (see `Target`).

    Examples:
        >>> X, y = np.linspace(-1, 1, 40)[:, None], np.linspace(-1, 1, 40) ** 2
        >>> def network(weights, row):
        ...     return jnp.tanh(row @ weights["inner"]) @ weights["outer"]
        >>> weights = {"inner": jnp.zeros((1, 5)), "outer": jnp.zeros((5, 1))}
        >>> target = nvgd.from_network(network, data=(X, y), parameters=weights)
        >>> target.dim  # ten weights and the noise; nvgd.sample(target) is next
        11
    """
    x, y = _pair(data)
    rows = finite_rows("X", x)
    y = np.asarray(y)
    if len(y.shape) == 0 or len(y) != len(rows):
        raise InputError(
            f"data must be a pair (X, y) with as many targets as rows, got shapes {rows.shape} and "
            f"{y.shape}."
        )
    bound = as_likelihood(likelihood).bind(y, standardise=standardise)
    parts = take_apart(network, parameters)
    inputs = Scaling.of_columns(rows) if standardise else Scaling.none()
    is_whole = rows.dtype.kind in "ui" and not standardise
    rows = rows if is_whole else inputs.standardise(rows)

    row = jax.ShapeDtypeStruct(rows.shape[1:], jnp.asarray(rows[:1]).dtype)
    found = output_shape(parts, row)
    wanted = bound.likelihood.output_shape(bound.targets, found)
    if np.prod(found) != np.prod(wanted):
        raise InputError(
            f"network must return an output of size {int(np.prod(wanted))} per row for this "
            f"likelihood and y, got shape {found}."
        )
    posed = BayesianNetwork(
        apply=Apply(parts.function, parts.rest, wanted),
        likelihood=bound.likelihood,
        prior=ParameterPrior.of(as_prior(prior), parts.parameters, parts.output_axis),
        targets=bound.scaling,
        noise_shape=bound.likelihood.noise_shape(bound.targets),
    )
    held = {"x": jnp.asarray(rows), "y": jnp.asarray(bound.targets)}
    model = NetworkModel(posed, inputs, held)
    return Target(
        posed.log_prior,
        example=jax.tree.map(lambda leaf: leaf[0], model.draw_start(jax.random.key(0), 1)),
        log_likelihood=posed.log_likelihood,
        data=held,
        batch_size=batch_size,
        particles_at_once=particles_at_once,
        constrain=posed.constrain,
        model=model,
    )


def _pair(data: Any) -> tuple[Any, Any]:
    # A dictionary would be unpacked to its keys.
    parts: Any = () if isinstance(data, Mapping) else data
    try:
        x, y = parts
    except (TypeError, ValueError):
        raise InputError(
            f"data must be a pair (X, y), got {type(data).__name__}: write data=(X, y)."
        ) from None
    return x, y
