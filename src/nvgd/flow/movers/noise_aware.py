"""Steps corrected for the noise of minibatch scores."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nvgd._support.errors import InputError, check_count, check_fraction, plain
from nvgd._support.random_bits import random_normals
from nvgd.flow.aim import check_batches
from nvgd.flow.movers.base import AbstractMover, check_fixed
from nvgd.flow.movers.plain import AbstractAroundEuler


class NoiseAwareState(NamedTuple):
    """Running mean of the covariance of the score noise, and the number of steps taken."""

    covariance: Float[Array, "d d"]
    num_steps: Int[Array, ""]


class NoiseAware(AbstractAroundEuler[NoiseAwareState]):
    """Euler steps that inject less noise, because minibatch scores are noisy already.

        x ← x + ε v + N(0, 2ετ I − ε² V),   V the covariance of the batch's score

    A step with a noisy score spreads particles as if noise of variance ε²V had been added. The
    injected noise is reduced by that amount (Ahn et al., 2012; Chen et al., 2014). If the
    direction's share of noise τ is too small for that, the excess replaces a part of the field's
    approximation of −∇log q:

        v ← v − R(f − ∇log p),   R = max(εV/2 − τ, 0)

    On a normal target of variance σ² this changes SGLD's stationary variance from
    σ²(1 + εV/2)/(1 − ε/2σ²) to ULA's σ²/(1 − ε/2σ²). V is estimated from the scores of parts of
    each batch, averaged over particles and steps, with a correction for batches that are not
    small compared with the data.

    All particles share the batch and hence its noise: each particle moves correctly, but not
    independently of the others.

    Arguments:
        proposal: `Euler(step_size)`, with step size ε.
        num_parts: number of equal parts into which a batch is split.
        memory: decay of the running mean of V.
        full: whether to estimate the full covariance instead of variances only.

    Examples:
        >>> flow = nvgd.ParticleFlow(
        ...     nvgd.coordinates.Identity(),
        ...     nvgd.directions.Langevin(),
        ...     nvgd.movers.NoiseAware(nvgd.movers.Euler(1e-4)),
        ... )
    """

    proposal: AbstractMover
    num_parts: int = eqx.field(default=4, converter=plain)
    memory: float = eqx.field(default=0.99, converter=plain)
    full: bool = eqx.field(default=False, converter=plain)

    def __check_init__(self):
        self.check_proposal(
            "knows what noise does in plain steps only, not in an optimiser's",
        )
        check_count("num_parts", self.num_parts, minimum=2)
        check_fraction("memory", self.memory)

    @property
    def evaluates_target(self):
        """Always."""
        return True

    def init(self, particles):
        """No estimate yet."""
        dim = particles.shape[1]
        return NoiseAwareState(jnp.zeros((dim, dim), particles.dtype), jnp.array(0))

    def __call__(self, aim, state, *, step, key):
        """Estimate the covariance of the scores, then step with the remaining noise."""
        particles, noise_share, target = aim.particles, aim.noise_share, aim.view.shown
        parts = aim.view.parts(particles, self.num_parts)
        scores = jnp.mean(parts, axis=0)
        seen = (target.batch_size or 0) / target.num_rows
        latest = (1 - seen) * _covariance_of_mean(parts - scores)
        # An arithmetic mean at first, an exponential one later.
        weight = jnp.maximum(1 / (state.num_steps + 1), 1 - self.memory).astype(latest.dtype)
        covariance = state.covariance + weight * (latest - state.covariance)

        size = self.euler.size(step, particles.dtype)
        if self.full:
            variances, axes = jnp.linalg.eigh(covariance)
            variances = jnp.maximum(variances, 0.0)
        else:
            variances, axes = jnp.diag(covariance), jnp.eye(len(covariance), dtype=latest.dtype)
        brought = 0.5 * size * variances
        injected = jnp.maximum(noise_share - brought, 0.0)
        repulsion = (aim.velocities - scores) @ axes
        if noise_share < 1:
            surplus = jnp.maximum(brought - noise_share, 0.0) / (1 - noise_share)
            repulsion = (1 - jnp.minimum(surplus, 1.0)) * repulsion
        noise = random_normals(key, particles.shape, particles.dtype)
        noise = jnp.sqrt(2 * injected / size) * noise
        moved = particles + size * (scores + (repulsion + noise) @ axes.T)
        return moved, NoiseAwareState(covariance, state.num_steps + 1)

    def diagnostics(self, state):
        """The variance of the scores, averaged over coordinates."""
        return {"score_variance": jnp.mean(jnp.diag(state.covariance))}

    def extra_gradients(self, num_moved):
        """One gradient per particle: all parts together cost as much as the batch."""
        return num_moved

    def check_parts(self, coordinates, direction):
        """Require fixed coordinates, because the covariance is averaged over steps."""
        check_fixed(coordinates, "NoiseAware averages a covariance over steps")
        if direction.capabilities.is_tempered:
            raise InputError(
                "NoiseAware estimates the noise of scores at the target's own temperature: use "
                f"Euler(step_size) with {type(direction).__name__}."
            )
        super().check_parts(coordinates, direction)

    def check_target(self, target):
        """Require minibatches that can be split into equal parts."""
        check_batches(target, "NoiseAware", self.num_parts)


def _covariance_of_mean(deviations: Float[Array, "k n d"]) -> Float[Array, "d d"]:
    """Covariance of the mean over k parts, from the parts' deviations, averaged over particles."""
    num_parts, num_particles, _ = deviations.shape
    total = jnp.einsum("kni,knj->ij", deviations, deviations)
    return total / (num_parts * (num_parts - 1) * num_particles)
