"""Predictions of a posterior over networks."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, PRNGKeyArray, PyTree

from nvgd._support.compilation import compiled
from nvgd._support.errors import InputError, check_count, check_fraction
from nvgd.frontends.networks_likelihoods import (
    LOG_NOISE_CENTRE,
    LOG_NOISE_SPREAD,
    AbstractClasses,
    AbstractLikelihood,
    AbstractNumeric,
)
from nvgd.frontends.networks_modules import Apply
from nvgd.frontends.networks_priors import ParameterPrior
from nvgd.frontends.networks_scaling import Scaling
from nvgd.targets.models import AbstractModel, Labels

# Networks × rows × outputs that are held at once, and the most rows.
MOST_OUTPUTS, MOST_ROWS = 2**21, 1024
# Halvings of the interval that contains a quantile.
BISECTIONS = 40
# Spread of the starting values of a learned log noise sd, around their prior mean.
NOISE_START_SPREAD = 0.1


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


class BayesianNetwork(eqx.Module):
    """Prior and likelihood of a network, as functions of a position.

    A position is a dictionary: the parameters, `network`; the logarithm of a learned noise sd,
    `log_noise`; and logarithms of learned prior scales, `log_scales`.

    Arguments:
        apply: the network, a function of parameters and one row.
        likelihood: distribution of targets, in standardised units.
        prior: prior of the parameters.
        targets: how targets were standardised.
        noise_shape: shape of the likelihood's own parameter, None if it has none.
    """

    apply: Apply
    likelihood: AbstractLikelihood
    prior: ParameterPrior
    targets: Scaling
    noise_shape: tuple[int, ...] | None = eqx.field(static=True)

    def log_prior(self, position: dict[str, PyTree]) -> Array:
        """Log prior density of parameters and noise."""
        value = self.prior(position)
        if self.noise_shape is not None:
            away = (position["log_noise"] - LOG_NOISE_CENTRE) / LOG_NOISE_SPREAD
            value += -0.5 * jnp.sum(away**2)
        return value

    def log_likelihood(self, position: dict[str, PyTree], datum: dict[str, Array]) -> Array:
        """Log likelihood of one row."""
        output = self.apply(position["network"], datum["x"])
        return self.likelihood.log_likelihood(output, position.get("log_noise"), datum["y"])

    def constrain(self, position: dict[str, PyTree]) -> dict[str, PyTree]:
        """Noise in the units of the targets; scales instead of their logarithms."""
        shown = {"network": position["network"]}
        if "log_scales" in position:
            shown["scales"] = jnp.exp(position["log_scales"])
        if "log_noise" in position:
            shown["noise"] = jnp.exp(position["log_noise"]) * self.targets.scale
        return shown

    def draw(self, key: PRNGKeyArray, num: int, noise_spread: float) -> dict[str, PyTree]:
        """Positions with parameters from the prior, and log noise with this spread."""
        parameter_key, noise_key = jax.random.split(key)
        drawn = self.prior.draw(parameter_key, num)
        if self.noise_shape is not None:
            steps = jax.random.normal(noise_key, (num, *self.noise_shape))
            drawn["log_noise"] = LOG_NOISE_CENTRE + noise_spread * steps
        return drawn


class NetworkModel(AbstractModel):
    """Prior, start and predictions of a network.

    Arguments:
        network: the network with its prior and likelihood.
        inputs: how inputs were standardised.
        data: inputs and targets as the network sees them.
    """

    network: BayesianNetwork
    inputs: Scaling
    data: dict[str, Array]

    def draw_prior(self, key, num):
        """Draws of parameters and noise from the prior."""
        return self.network.draw(key, num, LOG_NOISE_SPREAD)

    def draw_start(self, key, num):
        """Parameters from the prior, which is scaled as networks are initialised."""
        return self.network.draw(key, num, NOISE_START_SPREAD)

    def predict(
        self,
        key,
        positions,
        x=None,
        *,
        y=None,
        quantiles=(0.05, 0.5, 0.95),
        samples=True,
        rows_at_once=None,
    ):
        """A `Prediction` for rows `x`; without `x`, draws of y for the data.

        Arguments:
            x: rows as in the data, in the same units.
            y: observed targets, to evaluate the log predictive density of.
            quantiles: levels between 0 and 1.
            samples: whether to draw y.
            rows_at_once: number of rows to evaluate at a time; chosen by memory if omitted.
        """
        if x is None:
            found = self._forecast(key, positions, self.data["x"], None, (), True, rows_at_once)
            return {"y": jnp.asarray(found.samples)}
        x = self.checked_inputs(x)
        for level in quantiles:
            check_fraction("quantiles", level)
        y = None if y is None else self._checked_targets(y, len(x))
        return self._forecast(key, positions, x, y, tuple(quantiles), bool(samples), rows_at_once)

    def checked_inputs(self, x: Any) -> np.ndarray:
        """Rows in standardised units."""
        x = finite_rows("x", x)
        like = self.data["x"]
        if x.shape[1:] != like.shape[1:]:
            raise InputError(
                f"x must have rows of shape {like.shape[1:]}, as the data have, got an array of "
                f"shape {x.shape}."
            )
        return self.inputs.standardise(x) if like.dtype.kind == "f" else x

    def _checked_targets(self, y: Any, num_rows: int) -> np.ndarray:
        y, like = np.asarray(y), self.data["y"]
        if y.shape != (num_rows, *like.shape[1:]):
            raise InputError(
                f"y must have shape {(num_rows, *like.shape[1:])}, one target per row of x, got "
                f"{y.shape}."
            )
        scaling = self.network.targets
        return scaling.standardise(y) if like.dtype.kind == "f" else y.astype(np.int32)

    def _forecast(
        self,
        key: PRNGKeyArray,
        positions: PyTree,
        x: Any,
        y: np.ndarray | None,
        levels: tuple[float, ...],
        samples: bool,
        rows_at_once: int | None,
    ) -> Prediction:
        num_networks = len(jax.tree.leaves(positions)[0])
        size = rows_at_once
        if size is None:
            outputs = max(int(np.prod(self.network.apply.shape)), 1)
            size = int(np.clip(MOST_OUTPUTS // (num_networks * outputs), 1, MOST_ROWS))
        check_count("rows_at_once", size)
        # Rounded up, so that calls with a similar number of rows share a compiled program.
        size = min(size, 1 << max(len(x) - 1, 0).bit_length())
        x = np.asarray(x)
        chunks = []
        for number, first in enumerate(range(0, len(x), size)):
            rows = _padded(x[first : first + size], size)
            observed = None if y is None else jnp.asarray(_padded(y[first : first + size], size))
            chunk = _predict_rows(
                self.network,
                positions,
                jnp.asarray(rows),
                observed,
                jnp.asarray(levels),
                samples,
                jax.random.fold_in(key, number),
            )
            num = min(size, len(x) - first)
            host = jax.tree.map(np.asarray, chunk)
            # Rows are the second axis of quantiles and samples.
            chunks.append(
                _Chunk(
                    host.mean[:num],
                    host.quantiles[:, :num],
                    host.aleatoric[:num],
                    host.epistemic[:num],
                    None if host.samples is None else host.samples[:, :num],
                    None if host.log_likelihood is None else host.log_likelihood[:num],
                )
            )
        return Prediction(
            np.concatenate([chunk.mean for chunk in chunks]),
            dict(zip(levels, np.concatenate([c.quantiles for c in chunks], 1), strict=True)),
            np.concatenate([chunk.aleatoric for chunk in chunks]),
            np.concatenate([chunk.epistemic for chunk in chunks]),
            np.concatenate([c.samples for c in chunks], axis=1) if samples else None,
            None if y is None else np.concatenate([c.log_likelihood for c in chunks]),
        )

    def log_likelihoods(self, positions):
        """None: the target computes them from its data."""
        del positions

    def observed(self):
        """None: the target returns its data."""

    def labels(self):
        """None to show."""
        return Labels({}, {})


def finite_rows(name: str, values: Any) -> np.ndarray:
    """An array of numbers with one row per datum; refuse NaN, infinity and other things."""
    values = np.asarray(values)
    if values.dtype.kind not in "buif" or values.ndim < 2 or not values.size:
        raise InputError(
            f"{name} must be an array of numbers with axes (row, feature, …), got {values.dtype} "
            f"of shape {values.shape}" + ("; write x[:, None]." if values.ndim == 1 else ".")
        )
    is_faulty = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if is_faulty.any():
        raise InputError(
            f"{name} must hold finite numbers only, but {int(is_faulty.sum())} of its "
            f"{len(values)} rows hold NaN or infinity, first row {int(np.argmax(is_faulty))}: drop "
            "or impute them."
        )
    return values


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
    likelihood = network.likelihood

    def of_each(function: Any, *more: Any) -> Any:
        """A function of output and noise, for all networks and rows."""
        axes = [None if leaf is None else 0 for leaf in more]
        by_row = jax.vmap(function, in_axes=(0, None, *axes))
        noise_axis = None if noise is None else 0
        return jax.vmap(by_row, in_axes=(0, noise_axis, *(None for _ in more)))(
            outputs, noise, *more
        )

    drawn = log_likelihood = None
    if samples:
        keys = jax.random.split(key, len(x))
        drawn = of_each(lambda output, noise, key: likelihood.draw(key, output, noise), keys)
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
        def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
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
