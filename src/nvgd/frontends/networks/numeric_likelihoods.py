"""Likelihoods of targets that are numbers: normal with one or many noises, and Poisson."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc, gammaln, ndtr, xlogy
from jaxtyping import Array

from nvgd._support.errors import InputError, check_positive
from nvgd.frontends.networks.likelihood import AbstractNumeric, Bound, Noise, Output
from nvgd.frontends.networks.scaling import Scaling
from nvgd.frontends.networks.target_checks import real_targets

# Prior of the logarithm of a learned noise sd, in units of the targets' sd.
LOG_NOISE_CENTRE, LOG_NOISE_SPREAD = -1.0, 1.0
# Smallest sd of heteroscedastic noise, in the same units, and the output that means an sd of one.
SMALLEST_NOISE, UNIT_OUTPUT = 1e-3, 0.5413
LOG_2_PI = float(np.log(2 * np.pi))


class Gaussian(AbstractNumeric):
    """Normal noise, with the same standard deviation for all rows.

    Arguments:
        noise: its standard deviation, in units of the targets, a number or one per output. Learned
            if omitted: its logarithm, in units of the targets' standard deviation, is N(−1, 1).

    Examples:
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> y = X[:, 0] ** 2
        >>> target = nvgd.from_network(
        ...     lambda weights, row: row @ weights,
        ...     data=(X, y),
        ...     parameters=jnp.zeros((1, 1)),
        ...     likelihood=nvgd.networks.Gaussian(noise=0.1),
        ... )
        >>> target.dim
        1
    """

    noise: Array | None = None

    def __init__(self, noise: Any = None):
        if noise is not None:
            for value in np.ravel(np.asarray(noise)).tolist():
                check_positive("noise", value)
            noise = jnp.asarray(noise, jnp.result_type(float))
        self.noise = noise

    def bind(self, targets, *, standardise):
        """Standardise the targets, and the given noise with them."""
        targets = real_targets(targets)
        if self.noise is not None and self.noise.shape not in ((), targets.shape[1:]):
            raise InputError(
                f"noise must be one number, or one per column of y, whose shape is {targets.shape},"
                f" got shape {self.noise.shape}."
            )
        scaling = Scaling.of_targets(targets) if standardise else Scaling.none()
        noise = None if self.noise is None else self.noise / scaling.scale
        return Bound(Gaussian(noise), scaling.standardise(targets), scaling)

    def noise_shape(self, targets):
        """One learned standard deviation per output."""
        return targets.shape[1:] if self.noise is None else None

    def output_shape(self, targets, found):
        """As the target of one row."""
        del found
        return targets.shape[1:]

    def _sd(self, noise: Noise) -> Array:
        if self.noise is not None:
            return self.noise
        assert noise is not None
        return jnp.exp(noise)

    def log_likelihood(self, output, noise, target):
        """Normal log density."""
        return _normal_log_density(output, self._sd(noise), target)

    def moments(self, output, noise):
        """The output, and the noise's variance."""
        return output, jnp.broadcast_to(self._sd(noise) ** 2, output.shape)

    def cumulative(self, output, noise, value):
        """The normal cumulative distribution."""
        return ndtr((value - output) / self._sd(noise))

    def draw(self, key, output, noise):
        """The output plus noise."""
        return output + self._sd(noise) * jax.random.normal(key, output.shape, output.dtype)


class Heteroscedastic(AbstractNumeric):
    """Normal noise whose standard deviation is a second output of the network.

    For targets with k columns, the network has 2k outputs: k means, then k numbers r, with
    sd = softplus(r + .54) in units of the targets' standard deviation.

    Examples:
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> y = X[:, 0] ** 2
        >>> target = nvgd.from_network(
        ...     lambda weights, row: row @ weights,
        ...     data=(X, y),
        ...     parameters=jnp.zeros((1, 2)),
        ...     likelihood=nvgd.networks.Heteroscedastic(),
        ... )
        >>> target.dim
        2
    """

    def bind(self, targets, *, standardise):
        """Standardise the targets."""
        targets = real_targets(targets)
        scaling = Scaling.of_targets(targets) if standardise else Scaling.none()
        return Bound(self, scaling.standardise(targets), scaling)

    def output_shape(self, targets, found):
        """Two numbers per target."""
        del found
        return (2, *targets.shape[1:])

    def log_likelihood(self, output, noise, target):
        """Normal log density."""
        return _normal_log_density(*_mean_and_sd(output), target)

    def moments(self, output, noise):
        """Mean and variance, both from the network."""
        mean, sd = _mean_and_sd(output)
        return mean, sd**2

    def cumulative(self, output, noise, value):
        """The normal cumulative distribution."""
        mean, sd = _mean_and_sd(output)
        return ndtr((value - mean) / sd)

    def draw(self, key, output, noise):
        """The mean plus noise."""
        mean, sd = _mean_and_sd(output)
        return mean + sd * jax.random.normal(key, mean.shape, mean.dtype)


class Poisson(AbstractNumeric):
    """Counts, with rate exp(output) in units of the targets' mean.

    Arguments:
        rate: that mean; taken from the targets.

    Examples:
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> y = np.arange(40) // 10
        >>> target = nvgd.from_network(
        ...     lambda weights, row: row @ weights,
        ...     data=(X, y),
        ...     parameters=jnp.zeros((1, 1)),
        ...     likelihood=nvgd.networks.Poisson(),
        ... )
        >>> target.dim
        1
    """

    rate: Array = eqx.field(default=1.0, converter=jnp.asarray)

    def bind(self, targets, *, standardise):
        """Check that targets are counts, and take their mean."""
        del standardise
        targets = real_targets(targets)
        if (targets < 0).any() or (targets != np.round(targets)).any():
            raise InputError(
                "y must hold counts, whole numbers ≥ 0, for the Poisson likelihood, got "
                f"{targets[(targets < 0) | (targets != np.round(targets))][0]}."
            )
        dtype = jnp.result_type(float)
        return Bound(Poisson(targets.mean(0)), targets.astype(dtype), Scaling.none())

    def output_shape(self, targets, found):
        """As the target of one row."""
        del found
        return targets.shape[1:]

    def log_likelihood(self, output, noise, target):
        """Poisson log probability."""
        rate = self.rate * jnp.exp(output)
        terms = xlogy(target, self.rate) + target * output - rate - gammaln(target + 1.0)
        return jnp.sum(terms)

    def moments(self, output, noise):
        """The rate, twice."""
        rate = self.rate * jnp.exp(output)
        return rate, rate

    def cumulative(self, output, noise, value):
        """The Poisson cumulative distribution."""
        return gammaincc(jnp.floor(value) + 1.0, self.rate * jnp.exp(output))

    def draw(self, key, output, noise):
        """Counts."""
        rate = self.rate * jnp.exp(output)
        return jax.random.poisson(key, rate).astype(output.dtype)

    @property
    def is_discrete(self):
        """Counts."""
        return True


def _mean_and_sd(output: Output) -> tuple[Array, Array]:
    return output[0], jax.nn.softplus(output[1] + UNIT_OUTPUT) + SMALLEST_NOISE


def _normal_log_density(mean: Array, sd: Array, target: Array) -> Array:
    sd = jnp.broadcast_to(sd, mean.shape)
    return jnp.sum(-0.5 * ((target - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * LOG_2_PI)
