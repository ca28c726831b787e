"""Moves that are accepted or rejected, so that the target is kept exactly."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd.errors import InputError
from nvgd.movers.base import AbstractMover
from nvgd.movers.plain import Euler, size_at


class Metropolis(AbstractMover[Float[Array, ""]]):
    """Euler's step as a proposal, accepted by Metropolis and Hastings' rule.

        x' = x + ε v(x) + √(2ετ) ξ,   accepted with probability min(1, p(x')q(x|x')/p(x)q(x'|x))
        q(x'|x) = N(x'; x + ε v(x), 2ετ I)

    With `LangevinDirection` it is MALA. With `Halves(LangevinFraction(NeuralDirection(), τ))` a
    field trained on one half of the particles proposes for the other. Either leaves p invariant
    whatever ε is: a flow's or ULA's bias vanishes. Its cost is one gradient more a proposal;
    the share that was accepted is `history["acceptance"]`, at best about .6.

    Arguments:
        proposal: `Euler(step_size)`.
    """

    proposal: AbstractMover

    takes_noise: ClassVar[bool] = True
    takes_halves: ClassVar[bool] = True

    def __check_init__(self):
        if not isinstance(self.proposal, Euler):
            raise InputError(
                "Metropolis needs proposals of known density, which only plain steps have (an "
                "optimiser's depend on its past, caps on all particles): give Euler(step_size), "
                f"got {self.proposal!r}."
            )

    def init(self, particles):
        """Nothing was accepted yet."""
        return jnp.zeros((), particles.dtype)

    def __call__(
        self,
        particles,
        velocities,
        noise_share,
        state,
        *,
        log_densities,
        step,
        key,
        field=None,
        view=None,
    ):
        """Propose for the particles whose turn it is, and accept or reject."""
        del state
        assert field is not None
        assert view is not None
        assert isinstance(self.proposal, Euler)
        noise_key, uniform_key = jax.random.split(key)
        rows = field.rows(len(particles))
        here, size = particles[rows], size_at(self.proposal.step_size, step, particles.dtype)
        forward = here + size * velocities[rows]
        variance = 2 * noise_share * size
        noise = jax.random.normal(noise_key, here.shape, here.dtype)
        there = forward + jnp.sqrt(variance) * noise

        log_densities_there, scores_there = view.evaluate(there)
        backward = there + size * field(there, scores_there)
        gain = log_densities_there - log_densities[rows]
        # The densities of the way back and of the way there, without their common constant.
        gain += 0.5 * jnp.sum(noise**2, axis=1)
        gain -= 0.5 * jnp.sum((here - backward) ** 2, axis=1) / variance
        threshold = jnp.log(jax.random.uniform(uniform_key, gain.shape, gain.dtype))
        # False where the log density or the score there is not finite.
        is_accepted = (threshold < gain) & jnp.all(jnp.isfinite(scores_there), axis=1)
        moved = jnp.where(is_accepted[:, None], there, here)
        return particles.at[rows].set(moved), jnp.mean(is_accepted.astype(particles.dtype))

    def diagnostics(self, state):
        """The share of proposals that were accepted."""
        return {"acceptance": state}

    def extra_gradients(self, num_moved):
        """One at every proposal."""
        return num_moved

    def check_parts(self, coordinates, direction):
        """Only what keeps the rule exact."""
        if not coordinates.is_fixed:
            raise InputError(
                f"{type(coordinates).__name__} coordinates are fitted to the particles that "
                "Metropolis moves, which would make its rule inexact: use Identity() or "
                "Preconditioned(matrix)."
            )
        if not direction.is_reversible:
            raise InputError(
                f"{type(direction).__name__} lets a particle's proposal depend on particles that "
                "move with it, so that it has no density to correct for: use "
                "Halves(LangevinFraction(direction, τ)), or LangevinDirection() for MALA."
            )
        if not direction.noise_share:
            raise InputError(
                "a proposal without noise cannot be reversed: give the direction a share of it, "
                "Halves(LangevinFraction(direction, τ)) with τ > 0."
            )

    def check_target(self, target):
        """A density known from a batch only cannot be compared."""
        if target.batch_size is not None:
            raise InputError(
                "Metropolis compares log densities, and minibatches only estimate them: leave "
                "batch_size out."
            )
