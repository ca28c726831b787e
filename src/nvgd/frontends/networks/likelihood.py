"""The interface of likelihoods: what the output of a network says about a target."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd.frontends.networks.scaling import Scaling

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
