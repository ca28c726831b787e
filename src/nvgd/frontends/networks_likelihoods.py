"""Likelihoods of networks: what the output of a network says about a target."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc, gammaln, ndtr, xlogy
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd._support.errors import InputError, check_choice, check_kind, check_positive
from nvgd.frontends.networks_scaling import Scaling
from nvgd.frontends.networks_targets import class_labels, real_targets

# Prior of the logarithm of a learned noise sd, in units of the targets' sd.
LOG_NOISE_CENTRE, LOG_NOISE_SPREAD = -1.0, 1.0
# Smallest sd of heteroscedastic noise, in the same units, and the output that means an sd of one.
SMALLEST_NOISE, UNIT_OUTPUT = 1e-3, 0.5413
LOG_2_PI = float(np.log(2 * np.pi))

Output = Float[Array, "..."]
Noise = Float[Array, "..."] | None


class Bound(NamedTuple):
    """A likelihood that knows the data's units, targets in those units, and the way back."""

    likelihood: "AbstractLikelihood"
    targets: np.ndarray
    scaling: Scaling


class AbstractLikelihood(eqx.Module):
    """The distribution of one row's target given the output of a network for this row.

    `noise` is the likelihood's own parameter, None if it has none.
    """

    @abstractmethod
    def bind(self, targets: np.ndarray, *, standardise: bool) -> Bound:
        """Check the targets and adapt to their units."""

    @abstractmethod
    def output_shape(self, targets: np.ndarray, found: tuple[int, ...]) -> tuple[int, ...]:
        """The shape to which an output of shape `found` is brought before it is used."""

    @abstractmethod
    def log_likelihood(self, output: Output, noise: Noise, target: Array) -> Array:
        """Log likelihood of a target."""

    @abstractmethod
    def draw(self, key: PRNGKeyArray, output: Output, noise: Noise) -> Array:
        """A new target."""

    def noise_shape(self, targets: np.ndarray) -> tuple[int, ...] | None:
        """Shape of the likelihood's own parameter; None if it has none."""
        del targets


class AbstractNumeric(AbstractLikelihood):
    """Targets that are numbers: predictions have means, variances and quantiles."""

    @abstractmethod
    def moments(self, output: Output, noise: Noise) -> tuple[Array, Array]:
        """Mean and variance of the target."""

    @abstractmethod
    def cumulative(self, output: Output, noise: Noise, value: Array) -> Array:
        """Probability of targets up to `value`."""

    @property
    def is_discrete(self) -> bool:
        """Whether targets are whole numbers."""
        return False


class AbstractClasses(AbstractLikelihood):
    """Targets that are classes: predictions are probabilities."""

    @abstractmethod
    def probabilities(self, output: Output) -> Array:
        """Probability of every class; of class 1 alone if there are two and one output."""

    @abstractmethod
    def entropy(self, probabilities: Array) -> Array:
        """Entropy in nats."""


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
            for value in np.ravel(np.asarray(noise)):
                check_positive("noise", value)
            noise = jnp.asarray(noise, jnp.zeros(()).dtype)
        self.noise = noise

    def bind(self, targets, *, standardise):
        """Standardise the targets, and the given noise with them."""
        targets = real_targets(targets)
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
        dtype = np.dtype(jnp.zeros(()).dtype)
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


class Categorical(AbstractClasses):
    """Classes 0 … K−1, with one logit per class.

    Examples:
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> y = np.arange(40) % 3
        >>> target = nvgd.from_network(
        ...     lambda weights, row: row @ weights,
        ...     data=(X, y),
        ...     parameters=jnp.zeros((1, 3)),
        ...     likelihood=nvgd.networks.Categorical(),
        ... )
        >>> target.dim
        3
    """

    def bind(self, targets, *, standardise):
        """Check that targets are whole numbers from 0."""
        del standardise
        return Bound(self, class_labels(targets), Scaling.none())

    def output_shape(self, targets, found):
        """K numbers, for K of at least the number of labels in the data."""
        num_labels = int(targets.max()) + 1
        num_classes = found[0] if len(found) == 1 and found[0] >= num_labels else num_labels
        return (num_classes,)

    def log_likelihood(self, output, noise, target):
        """Log probability of the label."""
        return jax.nn.log_softmax(output)[target]

    def probabilities(self, output):
        """Softmax."""
        return jax.nn.softmax(output)

    def entropy(self, probabilities):
        """−Σ p log p."""
        return -jnp.sum(xlogy(probabilities, probabilities))

    def draw(self, key, output, noise):
        """Labels."""
        return jax.random.categorical(key, output)


class Bernoulli(AbstractClasses):
    """Two classes, 0 and 1, with one logit; or several such targets per row.

    Examples:
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> y = np.arange(40) % 2
        >>> target = nvgd.from_network(
        ...     lambda weights, row: row @ weights,
        ...     data=(X, y),
        ...     parameters=jnp.zeros((1, 1)),
        ...     likelihood=nvgd.networks.Bernoulli(),
        ... )
        >>> target.dim
        1
    """

    def bind(self, targets, *, standardise):
        """Check that targets are 0 or 1."""
        del standardise
        targets = real_targets(targets)
        if not np.isin(targets, (0, 1)).all():
            raise InputError(
                "y must hold 0 and 1 only for the Bernoulli likelihood, got "
                f"{targets[~np.isin(targets, (0, 1))][0]}; more classes need "
                'likelihood="categorical".'
            )
        return Bound(self, targets.astype(np.dtype(jnp.zeros(()).dtype)), Scaling.none())

    def output_shape(self, targets, found):
        """As the target of one row."""
        del found
        return targets.shape[1:]

    def log_likelihood(self, output, noise, target):
        """y·logit − log(1 + exp(logit))."""
        return jnp.sum(target * output - jax.nn.softplus(output))

    def probabilities(self, output):
        """Probability of 1."""
        return jax.nn.sigmoid(output)

    def entropy(self, probabilities):
        """−p log p − (1 − p) log(1 − p)."""
        rest = 1.0 - probabilities
        return -jnp.sum(xlogy(probabilities, probabilities) + xlogy(rest, rest))

    def draw(self, key, output, noise):
        """0 or 1."""
        drawn = jax.random.bernoulli(key, jax.nn.sigmoid(output))
        return drawn.astype(output.dtype)


LIKELIHOODS: dict[str, type[AbstractLikelihood]] = {
    "gaussian": Gaussian,
    "heteroscedastic": Heteroscedastic,
    "poisson": Poisson,
    "categorical": Categorical,
    "bernoulli": Bernoulli,
}


def as_likelihood(likelihood: AbstractLikelihood | str) -> AbstractLikelihood:
    """A likelihood of this name with its defaults, or the given one."""
    if isinstance(likelihood, str):
        check_choice("likelihood", likelihood, LIKELIHOODS)
        return LIKELIHOODS[likelihood]()
    check_kind("likelihood", likelihood, AbstractLikelihood, "networks.Gaussian(noise=0.1)")
    return likelihood


def _mean_and_sd(output: Output) -> tuple[Array, Array]:
    return output[0], jax.nn.softplus(output[1] + UNIT_OUTPUT) + SMALLEST_NOISE


def _normal_log_density(mean: Array, sd: Array, target: Array) -> Array:
    sd = jnp.broadcast_to(sd, mean.shape)
    return jnp.sum(-0.5 * ((target - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * LOG_2_PI)
