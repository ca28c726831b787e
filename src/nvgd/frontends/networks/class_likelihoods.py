"""Likelihoods of targets that are classes."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy

from nvgd._support.errors import InputError
from nvgd.frontends.networks.likelihood import AbstractClasses, Bound
from nvgd.frontends.networks.scaling import Scaling
from nvgd.frontends.networks.target_checks import class_labels, real_targets


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
        if len(found) == 1 and 1 < found[0] < num_labels:
            raise InputError(
                f"y must hold labels 0 … {found[0] - 1} for a network with {found[0]} outputs, got "
                f"{num_labels - 1}: number the classes with numpy.unique(y, return_inverse=True), "
                f"or give the network {num_labels} outputs."
            )
        return (found[0] if len(found) == 1 and found[0] > 1 else num_labels,)

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
                f"{targets[~np.isin(targets, (0, 1))][0]:g}: write y == label for two classes; "
                'more need likelihood="categorical".'
            )
        return Bound(self, targets.astype(jnp.result_type(float)), Scaling.none())

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
