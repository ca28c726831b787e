"""Predictions of many networks, averaged, in chunks of rows that bound the memory."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, PRNGKeyArray, PyTree

from nvgd._support.compilation import compiled
from nvgd._support.errors import check_count
from nvgd.frontends.networks.density import BayesianNetwork
from nvgd.frontends.networks.likelihood import AbstractClasses, AbstractNumeric

# Networks × rows × outputs that are held at once, and the most rows.
MOST_OUTPUTS, MOST_ROWS = 2**21, 1024
# Halvings of the interval that contains a quantile.
BISECTIONS = 40


@dataclasses.dataclass(frozen=True, repr=False)
class Prediction:
    """The posterior predictive distribution, averaged over networks; the first axis counts rows.

    Attributes:
        mean: predictive mean; for classes, their probabilities (of class 1 for "bernoulli").
        quantiles: predictive quantiles by level; for classes, the quantiles over networks of the
            probabilities.
        aleatoric: the part of the uncertainty that comes from noise, which more data would not
            reduce: the mean over networks of the variance of y. For classes, the mean entropy of
            the networks' predictions, in nats.
        epistemic: the part that comes from not knowing the parameters, which more data would
            reduce: the variance over networks of the mean of y. For classes, the mutual information
            of label and parameters, in nats.
        samples: draws of y, one per network, with axes (network, row, …); None if not wanted.
        log_likelihood: log predictive density of the `y` passed to `predict`; None without.

    Examples:
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> target = nvgd.from_network(
        ...     lambda weights, row: row @ weights,
        ...     data=(X, X[:, 0] ** 2),
        ...     parameters=jnp.zeros((1, 1)),
        ... )
        >>> posterior = nvgd.sample(target, nvgd.ULA(1e-3), num_particles=20, num_steps=20)
        >>> posterior.predict(X)
        Prediction(40 rows, quantiles 0.05, 0.5, 0.95, 20 samples per row)
    """

    mean: np.ndarray
    quantiles: dict[float, np.ndarray]
    aleatoric: np.ndarray
    epistemic: np.ndarray
    samples: np.ndarray | None
    log_likelihood: np.ndarray | None

    @property
    def total(self) -> np.ndarray:
        """All uncertainty, `aleatoric` + `epistemic`: variance of y, or entropy for classes."""
        return self.aleatoric + self.epistemic

    @property
    def sd(self) -> np.ndarray:
        """√`total`: the predictive standard deviation of targets that are numbers."""
        return np.sqrt(self.total)

    def __repr__(self) -> str:
        num = "no" if self.samples is None else len(self.samples)
        levels = ", ".join(f"{level:g}" for level in self.quantiles)
        return f"Prediction({len(self.mean)} rows, quantiles {levels}, {num} samples per row)"


class _Chunk(NamedTuple):
    """Predictions for some rows, in the units of the likelihood."""

    mean: Array
    quantiles: Array
    aleatoric: Array
    epistemic: Array
    samples: Array | None
    log_likelihood: Array | None


def predict_in_chunks(
    network: BayesianNetwork,
    positions: dict[str, PyTree],
    x: Any,
    *,
    y: np.ndarray | None,
    levels: tuple[float, ...],
    samples: bool,
    rows_at_once: int | None,
    key: PRNGKeyArray,
) -> Prediction:
    """Predictions for standardised rows, some rows at a time.

    Arguments:
        y: standardised targets, or None.
        levels: levels of the quantiles.
        samples: whether to draw y.
        rows_at_once: number of rows; chosen by memory if None.
    """
    num_networks = len(jax.tree.leaves(positions)[0])
    size = rows_at_once
    if size is None:
        outputs = max(int(np.prod(network.apply.shape)), 1)
        size = int(np.clip(MOST_OUTPUTS // (num_networks * outputs), 1, MOST_ROWS))
    check_count("rows_at_once", size)
    # Rounded up, so that calls with a similar number of rows share a compiled program.
    size = min(size, 1 << max(len(x) - 1, 0).bit_length())
    x = np.asarray(x)
    chunks = []
    for number, first in enumerate(range(0, len(x), size)):
        chunk = _predict_rows(
            network,
            positions,
            jnp.asarray(_padded(x[first : first + size], size)),
            None if y is None else jnp.asarray(_padded(y[first : first + size], size)),
            jnp.asarray(levels),
            samples,
            jax.random.fold_in(key, number),
        )
        chunks.append(jax.tree.map(np.asarray, chunk))

    def joined(name: str, axis: int = 0) -> Any:
        parts = [getattr(chunk, name) for chunk in chunks]
        if parts[0] is None:
            return None
        whole = np.concatenate(parts, axis=axis)
        return whole[: len(x)] if axis == 0 else whole[:, : len(x)]

    return Prediction(
        joined("mean"),
        dict(zip(levels, joined("quantiles", 1), strict=True)),
        joined("aleatoric"),
        joined("epistemic"),
        joined("samples", 1),
        joined("log_likelihood"),
    )


def _padded(rows: np.ndarray, size: int) -> np.ndarray:
    """The rows, with the last one repeated up to `size`."""
    return rows[np.minimum(np.arange(size), len(rows) - 1)]


@compiled
def _predict_rows(
    network: BayesianNetwork,
    positions: dict[str, PyTree],
    x: Array,
    y: Array | None,
    levels: Array,
    samples: bool,
    key: PRNGKeyArray,
) -> _Chunk:
    # One network after another: the activations of one for all rows are what is held.
    outputs = jax.lax.map(
        lambda parameters: jax.vmap(network.apply, in_axes=(None, 0))(parameters, x),
        positions["network"],
    )
    noise = positions.get("log_noise")
    noise_axis = None if noise is None else 0
    likelihood = network.likelihood

    def of_each(function: Callable[..., Any], *more: Array) -> Any:
        """A function of output, noise and more values per row, for all networks and rows."""
        by_row = jax.vmap(function, in_axes=(0, None, *(0 for _ in more)))
        by_network = jax.vmap(by_row, in_axes=(0, noise_axis, *(None for _ in more)))
        return by_network(outputs, noise, *more)

    drawn = log_likelihood = None
    if samples:
        keys = jax.random.split(key, outputs.shape[:2])
        by_row = jax.vmap(likelihood.draw, in_axes=(0, 0, None))
        drawn = jax.vmap(by_row, in_axes=(0, 0, noise_axis))(keys, outputs, noise)
        drawn = drawn if drawn.dtype.kind == "i" else network.targets.restore(drawn)
    if y is not None:
        each = of_each(likelihood.log_likelihood, y)
        log_likelihood = logsumexp(each, axis=0) - jnp.log(len(each))
        num_targets = y[0].size
        log_likelihood -= jnp.sum(jnp.log(jnp.broadcast_to(network.targets.scale, (num_targets,))))
    if isinstance(likelihood, AbstractClasses):
        probabilities = of_each(lambda output, _: likelihood.probabilities(output))
        mean = jnp.mean(probabilities, axis=0)
        aleatoric = jnp.mean(jax.vmap(jax.vmap(likelihood.entropy))(probabilities), axis=0)
        epistemic = jnp.maximum(jax.vmap(likelihood.entropy)(mean) - aleatoric, 0.0)
        quantiles = jnp.quantile(probabilities, levels, axis=0)
        return _Chunk(mean, quantiles, aleatoric, epistemic, drawn, log_likelihood)
    assert isinstance(likelihood, AbstractNumeric)
    means, variances = of_each(likelihood.moments)
    # Bracket all quantiles: beyond ten sd of every network there is next to nothing.
    spread = 10.0 * jnp.sqrt(variances) + 1.0
    low, high = jnp.min(means - spread, axis=0), jnp.max(means + spread, axis=0)

    def quantile(level: Array) -> Array:
        def halve(_: Array | int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bracket
            middle = 0.5 * (low + high)
            if likelihood.is_discrete:
                middle = jnp.floor(middle)
            below = jnp.mean(of_each(likelihood.cumulative, middle), axis=0) < level
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        start = (low, high)
        if likelihood.is_discrete:
            start = (-jnp.ones_like(low), jnp.ceil(high))
        return jax.lax.fori_loop(0, BISECTIONS, halve, start)[1]

    scale = network.targets.scale
    return _Chunk(
        network.targets.restore(jnp.mean(means, axis=0)),
        network.targets.restore(jax.vmap(quantile)(levels)),
        scale**2 * jnp.mean(variances, axis=0),
        scale**2 * jnp.var(means, axis=0),
        drawn,
        log_likelihood,
    )
