"""Normalised test densities with exact draws and moments: normal distributions and mixtures.

For example, to compare particles with exact draws:

    target = nvgd.densities.GaussianMixture([[-4.0], [4.0]], weights=[0.3, 0.7])
    posterior = nvgd.sample(target.log_density, dim=target.dim)
    nvgd.metrics.energy_distance(posterior.particles, target.sample(jax.random.key(1), 2000))
"""

import math
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike

from nvgd._support.errors import InputError, check_count, check_positive


class AbstractDensity(eqx.Module):
    """A normalised density with exact draws.

    Examples:
        >>> isinstance(nvgd.densities.Funnel(2), nvgd.densities.AbstractDensity)
        True
    """

    dim: eqx.AbstractVar[int]

    @property
    @abstractmethod
    def mean(self) -> Float[Array, " d"]:
        """Exact mean."""

    @property
    @abstractmethod
    def covariance(self) -> Float[Array, "d d"]:
        """Exact covariance matrix."""

    @abstractmethod
    def log_density(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """log p(x), normalised."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, num_draws: int) -> Float[Array, "n d"]:
        """Exact, independent draws."""


class Gaussian(AbstractDensity):
    """The normal distribution N(mean, covariance).

    Arguments:
        mean: d numbers.
        covariance: a (d, d) matrix; a vector of d variances stands for a diagonal matrix.

    Examples:
        >>> normal = nvgd.densities.Gaussian([0.0, 1.0], [1.0, 4.0])
        >>> normal.covariance.tolist()
        [[1.0, 0.0], [0.0, 4.0]]
    """

    centre: Float[Array, " d"]
    cholesky: Float[Array, "d d"]
    dim: int = eqx.field(static=True)

    def __init__(
        self,
        mean: ArrayLike,
        covariance: ArrayLike,
    ):
        # Double precision: single loses the small eigenvalues of an ill-conditioned matrix.
        centre, matrix = np.asarray(mean, np.float64), np.asarray(covariance, np.float64)
        matrix = np.diag(matrix) if matrix.ndim == 1 else matrix
        if centre.ndim != 1 or matrix.shape != (len(centre), len(centre)):
            raise InputError(
                "covariance must be a (d, d) matrix or d variances for a mean of length d, got "
                f"shapes {np.shape(covariance)} and {np.shape(mean)}."
            )
        try:
            lower = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            lower = None
        if lower is None or not np.allclose(matrix, matrix.T):
            raise InputError("covariance must be symmetric and positive definite.")
        self.centre, self.cholesky = jnp.asarray(centre), jnp.asarray(lower)
        self.dim = len(centre)

    @classmethod
    def ill_conditioned(
        cls, dim: int = 50, smallest: float = 1e-4, largest: float = 1.0
    ) -> "Gaussian":
        """The paper's ill-conditioned Gaussian: mean zero, logarithmically spaced variances.

        Arguments:
            dim: d.
            smallest, largest: the extreme variances.
        """
        check_count("dim", dim)
        check_positive("smallest", smallest)
        check_positive("largest", largest)
        return cls(np.zeros(dim), np.geomspace(smallest, largest, dim))

    def log_density(self, x):
        """Normalised Gaussian log density."""
        whitened = jax.scipy.linalg.solve_triangular(self.cholesky, x - self.centre, lower=True)
        log_scale = jnp.sum(jnp.log(jnp.diagonal(self.cholesky)))
        return -0.5 * whitened @ whitened - log_scale - 0.5 * self.dim * math.log(2 * math.pi)

    def sample(self, key, num_draws):
        """mean + L ξ."""
        noise = jax.random.normal(key, (num_draws, self.dim), self.centre.dtype)
        return self.centre + noise @ self.cholesky.T

    @property
    def mean(self):
        """As given."""
        return self.centre

    @property
    def covariance(self):
        """As given."""
        return self.cholesky @ self.cholesky.T


class GaussianMixture(AbstractDensity):
    """A mixture Σ wₖ N(mₖ, sₖ² I) of K isotropic Gaussians.

    Arguments:
        means: mₖ, an array (K, d).
        scales: sₖ, K standard deviations, or one for all components.
        weights: wₖ, K positive numbers, normalised to sum to one; equal if omitted.

    Examples:
        >>> mixture = nvgd.densities.GaussianMixture([[-4.0], [4.0]], weights=[0.3, 0.7])
        >>> [round(value, 3) for value in mixture.mean.tolist()]
        [1.6]
    """

    means: Float[Array, "K d"]
    scales: Float[Array, " K"]
    weights: Float[Array, " K"]
    dim: int = eqx.field(static=True)

    def __init__(
        self,
        means: ArrayLike = ((-3.0, 0.0), (3.0, 0.0)),
        scales: ArrayLike = 1.0,
        weights: ArrayLike | None = None,
    ):
        self.means = jnp.asarray(means, float)
        if self.means.ndim != 2 or not self.means.size:
            raise InputError(f"means must have shape (components, d), got {self.means.shape}.")
        num_components, self.dim = self.means.shape
        weights = jnp.ones(num_components) if weights is None else jnp.asarray(weights, float)
        scales = jnp.asarray(scales, float)
        scales = jnp.full(num_components, scales) if scales.ndim == 0 else scales
        for name, values in (("weights", weights), ("scales", scales)):
            is_positive = jnp.all((values > 0) & jnp.isfinite(values))
            if values.shape != (num_components,) or not bool(is_positive):
                raise InputError(f"{name} must be {num_components} positive numbers, got {values}.")
        self.scales, self.weights = scales, weights / jnp.sum(weights)

    def log_density(self, x):
        """Log of the weighted sum."""
        components = jnp.sum(norm.logpdf(x, self.means, self.scales[:, None]), axis=-1)
        return logsumexp(components + jnp.log(self.weights))

    def sample(self, key, num_draws):
        """Draw the component, then from its Gaussian."""
        component_key, noise_key = jax.random.split(key)
        component = jax.random.categorical(component_key, jnp.log(self.weights), shape=(num_draws,))
        noise = jax.random.normal(noise_key, (num_draws, self.dim))
        return self.means[component] + self.scales[component, None] * noise

    @property
    def mean(self):
        """Σ wₖmₖ."""
        return self.weights @ self.means

    @property
    def covariance(self):
        """Covariance within plus covariance between components."""
        centred = self.means - self.mean
        within = jnp.eye(self.dim) * (self.weights @ self.scales**2)
        return within + (self.weights * centred.T) @ centred
