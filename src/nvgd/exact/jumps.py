"""Jumps: independence proposals from a mixture of Student-t densities fitted to the particles.

A jump proposes a position u' drawn from a density g, whatever the current position u is, and is
accepted with probability min(1, p(u')g(u)/p(u)g(u')) (Tierney, "Markov chains for exploring
posterior distributions", 1994). Jumps carry particles between separate modes, so that the modes get
their weights, provided that g has a component at each of them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd._support.particle_groups import even_selection
from nvgd._support.random_bits import random_uniforms
from nvgd._support.robust import cholesky_of_scatter, inverse_of, typical_size

# Components at modes; one more covers all particles and has this share of the jumps.
NUM_MODES = 4
COMMON_SHARE = 0.2
# Degrees of freedom; an even number. Most targets have lighter tails.
FREEDOM = 4
# Fewest particles per dimension for correlations within the modes; with fewer, scales only.
PARTICLES_PER_DIMENSION = 4
NUM_ITERATIONS = 15
# Numbers uniform on (0, 1) that a draw uses.
NUM_UNIFORMS = FREEDOM // 2 + 1


class Jumps(NamedTuple):
    """g(u) = Σₖ wₖ t₄(L⁻¹(u − μₖ)/sₖ)/sₖᵈ: modes of the same shape LLᵀ and different sizes sₖ."""

    log_weights: Float[Array, " k"]
    centres: Float[Array, "k d"]
    scales: Float[Array, " k"]
    lower: Float[Array, "d d"]
    inverse: Float[Array, "d d"]

    def draw(
        self, normals: Float[Array, "n d"], uniforms: Float[Array, "n u"]
    ) -> Float[Array, "n d"]:
        """Draws of g, from normal numbers and `NUM_UNIFORMS` uniform ones per row."""
        shares = jnp.cumsum(jnp.exp(self.log_weights))
        chosen = jnp.sum(uniforms[:, :1] * shares[-1] > shares[:-1], axis=1)
        # A χ² variable with ν degrees of freedom is twice the sum of ν/2 exponential variables.
        squares = -2 * jnp.sum(jnp.log(uniforms[:, 1:]), axis=1, keepdims=True)
        within = (normals * jnp.sqrt(FREEDOM / squares)) @ self.lower.T
        return self.centres[chosen] + self.scales[chosen, None] * within

    def log_densities(self, positions: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Log g at each position, up to a constant."""
        return jax.nn.logsumexp(self.component_logs(self.squares(positions)), axis=1)

    def squares(self, positions: Float[Array, "n d"]) -> Float[Array, "n k"]:
        """Squared distance |L⁻¹(u − μₖ)|²/sₖ² from each component."""
        return _squares(positions @ self.inverse.T, self.centres @ self.inverse.T) / self.scales**2

    def component_logs(self, squares: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Log of each term of g, up to a constant."""
        dim = len(self.lower)
        logs = -0.5 * (FREEDOM + dim) * jnp.log1p(squares / FREEDOM)
        return self.log_weights - dim * jnp.log(self.scales) + logs


def fit_jumps(particles: Float[Array, "n d"], key: PRNGKeyArray, stream: int) -> Jumps:
    """Fit the mixture to particles of about unit spread.

    Expectation–maximisation, started at particles chosen at random, far ones with a higher
    probability (k-means++).
    """
    particles = even_selection(particles)
    num, dim = particles.shape
    uniforms = random_uniforms(key, (NUM_MODES,), particles.dtype, stream)
    # Clipped, so that strays are not chosen for their distance.
    farthest = 100 * dim * typical_size(particles.ravel()) ** 2

    def choose(i: Array | int, centres: Float[Array, "k d"]) -> Float[Array, "k d"]:
        nearest = jnp.minimum(jnp.min(_squares(particles, centres), axis=1), farthest)
        sums = jnp.cumsum(nearest)
        chosen = jnp.minimum(jnp.sum(sums < uniforms[i] * sums[-1]), num - 1)
        return centres.at[i].set(particles[chosen])

    first = particles[jnp.minimum((uniforms[0] * num).astype(int), num - 1)]
    centres = jnp.broadcast_to(first, (NUM_MODES, dim))
    centres = jax.lax.fori_loop(1, NUM_MODES, choose, centres)

    def improve(_: Array | int, modes: Jumps) -> Jumps:
        squares = modes.squares(particles)
        shares = jax.nn.softmax(modes.component_logs(squares), axis=1)
        counts = jnp.sum(shares, axis=0)
        # Weights of a Student-t fit: far particles count less.
        weights = shares * (FREEDOM + dim) / (FREEDOM + squares)
        centres = weights.T @ particles / (jnp.sum(weights, axis=0)[:, None] + 1e-6)
        sizes = jnp.sum(weights * squares, axis=0) / (dim * counts + 1e-6)
        scales = jnp.clip(modes.scales * jnp.sqrt(sizes), 1e-3, 1e3)
        nearest = jnp.argmax(shares, axis=1)
        residuals = (particles - centres[nearest]) / scales[nearest, None]
        lower = cholesky_of_scatter(residuals, jnp.max(weights, axis=1))
        if num < PARTICLES_PER_DIMENSION * dim:
            lower = jnp.diag(jnp.sqrt(jnp.sum(lower**2, axis=1)))
        log_weights = jnp.log((counts + 1) / (num + NUM_MODES))
        return Jumps(log_weights, centres, scales, lower, inverse_of(lower))

    ones, identity = jnp.ones(NUM_MODES, particles.dtype), jnp.eye(dim, dtype=particles.dtype)
    start = Jumps(-jnp.log(NUM_MODES * ones), centres, ones, identity, identity)
    return _with_common(jax.lax.fori_loop(0, NUM_ITERATIONS, improve, start), particles)


def _with_common(modes: Jumps, particles: Float[Array, "n d"]) -> Jumps:
    """Add a component that covers all particles."""
    centre = jnp.mean(particles, axis=0)
    size = typical_size(((particles - centre) @ modes.inverse.T).ravel())
    return modes._replace(
        log_weights=jnp.append(modes.log_weights + jnp.log1p(-COMMON_SHARE), jnp.log(COMMON_SHARE)),
        centres=jnp.concatenate([modes.centres, centre[None]]),
        scales=jnp.append(modes.scales, size + 1e-3),
    )


def _squares(positions: Float[Array, "n d"], centres: Float[Array, "k d"]) -> Float[Array, "n k"]:
    """|uᵢ − μₖ|², one centre after another: there are few of them."""
    return jnp.stack([jnp.sum((positions - centre) ** 2, axis=1) for centre in centres], axis=1)
