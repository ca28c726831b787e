"""Test densities with curved contours: Neal's funnel, a banana, a ring."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from nvgd._support.errors import check_count, check_positive
from nvgd.evaluation.densities import AbstractDensity


class Funnel(AbstractDensity):
    """Neal's funnel: x₁ ~ N(0, s²), xᵢ ~ N(0, e^{x₁}) for i > 1 (paper, eq. 5).

    Arguments:
        dim: d ≥ 2.
        scale: s, 3 in the paper.

    Examples:
        >>> funnel = nvgd.densities.Funnel(10)
        >>> funnel.sample(jax.random.key(0), 1000).shape
        (1000, 10)
    """

    dim: int = eqx.field(static=True, default=2)
    scale: float = 3.0

    def __check_init__(self):
        check_count("dim", self.dim, minimum=2)
        check_positive("scale", self.scale)

    def log_density(self, x):
        """Normal in x₁; normal with variance e^{x₁} in the other coordinates."""
        return norm.logpdf(x[0], scale=self.scale) + jnp.sum(
            norm.logpdf(x[1:], scale=jnp.exp(x[0] / 2))
        )

    def sample(self, key, num_draws):
        """Ancestral sampling: first x₁, then the other coordinates."""
        draws = jax.random.normal(key, (num_draws, self.dim))
        first = self.scale * draws[:, :1]
        return jnp.concatenate([first, jnp.exp(first / 2) * draws[:, 1:]], axis=1)

    @property
    def mean(self):
        """Zero by symmetry."""
        return jnp.zeros(self.dim)

    @property
    def covariance(self):
        """Var x₁ = s², Var xᵢ = E e^{x₁} = e^{s²/2} for i > 1."""
        variances = jnp.full(self.dim, math.exp(self.scale**2 / 2))
        return jnp.diag(variances.at[0].set(self.scale**2))


class Banana(AbstractDensity):
    """A bent Gaussian: x₁ ~ N(0, s²), x₂ ~ N(b(x₁² − s²), 1).

    Arguments:
        bend: b.
        scale: s.

    Examples:
        >>> nvgd.densities.Banana(bend=0.2).sample(jax.random.key(0), 1000).shape
        (1000, 2)
    """

    bend: float = 0.1
    scale: float = 3.0
    dim: int = eqx.field(static=True, default=2, init=False)

    def __check_init__(self):
        check_positive("scale", self.scale)
        check_positive("|bend|", abs(self.bend), zero_allowed=True)

    def log_density(self, x):
        """Normal in x₁, unit normal in the distance of x₂ from the bend."""
        ridge = self.bend * (x[0] ** 2 - self.scale**2)
        return norm.logpdf(x[0], scale=self.scale) + norm.logpdf(x[1] - ridge)

    def sample(self, key, num_draws):
        """Bend Gaussian draws."""
        draws = jax.random.normal(key, (num_draws, 2))
        first = self.scale * draws[:, 0]
        return jnp.stack([first, draws[:, 1] + self.bend * (first**2 - self.scale**2)], axis=1)

    @property
    def mean(self):
        """Zero, because the bend is centred."""
        return jnp.zeros(2)

    @property
    def covariance(self):
        """Var x₁ = s², Var x₂ = 1 + b² Var(x₁²) = 1 + 2b²s⁴; no linear correlation."""
        return jnp.diag(jnp.array([self.scale**2, 1 + 2 * self.bend**2 * self.scale**4]))


class Ring(AbstractDensity):
    """A ring in the plane: p(x) ∝ exp(−(|x| − R)²/(2w²)).

    Arguments:
        radius: R.
        width: w.

    Examples:
        >>> nvgd.densities.Ring(radius=4.0).mean.tolist()
        [0.0, 0.0]
    """

    radius: float = 3.0
    width: float = 0.3
    dim: int = eqx.field(static=True, default=2, init=False)

    def __check_init__(self):
        check_positive("radius", self.radius)
        check_positive("width", self.width)

    def log_density(self, x):
        """Gaussian in the distance from the circle."""
        # The smallest positive number keeps the gradient of |x| finite at the centre.
        distance = jnp.sqrt(x @ x + jnp.finfo(x.dtype).tiny) - self.radius
        mass = 2 * math.pi * self._radial_moment(1)
        return -0.5 * (distance / self.width) ** 2 - math.log(mass)

    def sample(self, key, num_draws):
        """Uniform angle; radius by inverting its distribution function on a fine grid."""
        radius_key, angle_key = jax.random.split(key)
        low = max(self.radius - 12 * self.width, 0.0)
        grid = np.linspace(low, self.radius + 12 * self.width, 20001)
        heights = grid * np.exp(-0.5 * ((grid - self.radius) / self.width) ** 2)
        cumulative = np.concatenate([[0.0], np.cumsum(heights[1:] + heights[:-1])])
        uniform = jax.random.uniform(radius_key, (num_draws,))
        radius = jnp.interp(uniform, jnp.asarray(cumulative / cumulative[-1]), jnp.asarray(grid))
        angle = jax.random.uniform(angle_key, (num_draws,), maxval=2 * math.pi)
        return radius[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)

    @property
    def mean(self):
        """Zero by symmetry."""
        return jnp.zeros(2)

    @property
    def covariance(self):
        """½ E r² I."""
        return jnp.eye(2) * (self._radial_moment(3) / self._radial_moment(1) / 2)

    def _radial_moment(self, power: int) -> float:
        """∫₀^∞ rᵏ exp(−(r − R)²/(2w²)) dr for k = 1 or 3, by moments of a truncated normal."""
        cut = -self.radius / self.width
        height = math.exp(-0.5 * cut**2) / math.sqrt(2 * math.pi)
        mass = 0.5 * math.erfc(cut / math.sqrt(2))
        moments = (mass, height, mass + cut * height, (cut**2 + 2) * height)
        terms = (
            math.comb(power, k) * self.radius ** (power - k) * self.width**k * moments[k]
            for k in range(power + 1)
        )
        return math.sqrt(2 * math.pi) * self.width * sum(terms)
