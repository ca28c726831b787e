"""Metropolis–Hastings moves, which leave the target invariant."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd._support.errors import InputError
from nvgd._support.random_bits import random_normals, random_uniforms
from nvgd.flow.movers.base import AbstractMover
from nvgd.flow.movers.plain import AbstractAroundEuler


class Metropolis(AbstractAroundEuler[Float[Array, ""]]):
    """Euler steps as proposals of the Metropolis–Hastings algorithm.

        x' = x + ε v(x) + √(2ετ) ξ,   accepted with probability min(1, p(x')q(x|x')/p(x)q(x'|x))
        q(x'|x) = N(x'; x + ε v(x), 2ετ I)

    With `Langevin` this is MALA. With `Halves(LangevinFraction(Neural(), τ))` a field trained on
    one half of the particles proposes moves of the other half. Both leave p invariant for any ε,
    which removes the bias of the flow or of ULA. Each proposal costs one more gradient. The
    acceptance rate is `history["acceptance"]`; about .6 is best.

    Arguments:
        proposal: `Euler(step_size)`, with step size ε. τ is the direction's share of noise.

    Examples:
        >>> flow = nvgd.ParticleFlow(
        ...     nvgd.coordinates.Identity(),
        ...     nvgd.directions.Langevin(),
        ...     nvgd.movers.Metropolis(nvgd.movers.Euler(0.1)),
        ... )
    """

    proposal: AbstractMover

    def __check_init__(self):
        self.check_proposal(
            "needs proposals of known density, which only plain steps have (an optimiser's depend "
            "on its past, caps on all particles)",
        )

    @property
    def evaluates_target(self):
        """Always."""
        return True

    def init(self, particles):
        """Acceptance rate zero."""
        return jnp.zeros((), particles.dtype)

    def __call__(self, aim, state, *, step, key):
        """Propose moves of the particles that the field may move, and accept or reject them."""
        del state
        particles, field = aim.particles, aim.field
        assert field is not None  # `check_parts` rejects directions without a field
        rows = field.rows(len(particles))
        here, size = particles[rows], self.euler.size(step, particles.dtype)
        forward = self.euler.drift(here, aim.velocities[rows], step)
        variance = 2 * aim.noise_share * size
        noise = random_normals(key, here.shape, here.dtype, 0)
        there = forward + jnp.sqrt(variance) * noise

        found = aim.view.evaluate(there)
        backward = self.euler.drift(there, field(there, found.scores), step)
        gain = found.log_densities - aim.log_densities[rows]
        # log q(x|x') − log q(x'|x), without the common constant.
        gain += 0.5 * jnp.sum(noise**2, axis=1)
        gain -= 0.5 * jnp.sum((here - backward) ** 2, axis=1) / variance
        threshold = jnp.log(random_uniforms(key, gain.shape, gain.dtype, 1))
        is_accepted = (threshold < gain) & found.is_finite
        moved = jnp.where(is_accepted[:, None], there, here)
        return particles.at[rows].set(moved), jnp.mean(is_accepted.astype(particles.dtype))

    def diagnostics(self, state):
        """The acceptance rate of the last step."""
        return {"acceptance": state}

    def extra_gradients(self, num_moved):
        """One gradient per proposal."""
        return num_moved

    def check_parts(self, coordinates, direction):
        """Accept only parts for which the Metropolis–Hastings rule is exact."""
        name, capabilities = type(direction).__name__, direction.capabilities
        if coordinates.frame_kind != "fixed":
            raise InputError(
                f"{type(coordinates).__name__} coordinates are fitted to the particles that "
                "Metropolis moves, which would make its rule inexact: use Identity() or "
                "Preconditioned(matrix)."
            )
        if capabilities.is_tempered:
            raise InputError(
                f"{name} proposes at another temperature than Metropolis accepts at: "
                "anneal without Metropolis, and sample from the result with MALA."
            )
        if capabilities.depends_on == "past":
            raise InputError(
                f"{name} lets a proposal depend on earlier steps, so that it cannot be reversed: "
                "use Langevin() for MALA."
            )
        if capabilities.depends_on == "moving":
            raise InputError(
                f"{name} lets a particle's proposal depend on particles that move with it, so that "
                "it has no density to correct for: use Halves(LangevinFraction(direction, τ)), or "
                "Langevin() for MALA."
            )
        if not capabilities.noise_share:
            raise InputError(
                "a proposal without noise cannot be reversed: give the direction a share of it, "
                "Halves(LangevinFraction(direction, τ)) with τ > 0."
            )

    def check_target(self, target):
        """Reject minibatches, which only estimate the log density."""
        if target.is_noisy:
            raise InputError(
                "Metropolis compares log densities, and minibatches only estimate them: leave "
                "batch_size out."
            )
