"""The regulariser |f|ᵖ/p with a power that is learned as the flow goes."""

import dataclasses
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd.directions.base import AbstractDirection, Diagnostics, Fit, WitnessField, norm_squared
from nvgd.directions.neural import NeuralDirection, NeuralState
from nvgd.errors import InputError, check_kind, check_positive, plain
from nvgd.regularisers import PowerNorm


class LearnedPowerState(NamedTuple):
    """The network, and p."""

    network: NeuralState
    power: Float[Array, ""]


class LearnedPower(AbstractDirection[LearnedPowerState]):
    """`PowerNorm(p)` with p moved, a little every step, to where KL(q‖p) falls faster.

        p ← p + η sign ∂/∂p E_q|v|^q,   1/p + 1/q = 1,   |v| = |f|^(p−1)

    E|v|^q is the rate at which the flow of |f|ᵖ/p lowers the divergence (Cheng et al., 2023,
    adaptive generalised Wasserstein gradient flow; they use coordinates' norms and the clipped
    gradient). The flow speeds up where it is slow: p rises, and q falls to 1, as |v| gets small.

    Arguments:
        trainer: the network, and how it is trained; its regulariser's power is where p starts.
        learning_rate: η.
        lowest, highest: p stays between them.
    """

    trainer: NeuralDirection = NeuralDirection()
    learning_rate: float = eqx.field(default=1e-3, converter=plain)
    lowest: float = eqx.field(default=1.5, converter=plain)
    highest: float = eqx.field(default=4.0, converter=plain)

    min_particles: ClassVar[int] = 2

    def __check_init__(self):
        check_kind("trainer", self.trainer, NeuralDirection, "NeuralDirection()")
        check_positive("learning_rate", self.learning_rate)
        if not isinstance(self.trainer.regulariser, PowerNorm):
            raise InputError(
                "LearnedPower learns the power of PowerNorm: give the trainer no other regulariser."
            )
        if not 1 < self.lowest < self.highest:
            raise InputError(
                f"lowest and highest must satisfy 1 < lowest < highest, got {self.lowest} and "
                f"{self.highest}."
            )

    def init(self, particles, *, key):
        """The trainer's, and the power it has."""
        regulariser = self.trainer.regulariser
        assert isinstance(regulariser, PowerNorm)
        power = jnp.asarray(regulariser.power, particles.dtype)
        return LearnedPowerState(self.trainer.init(particles, key=key), power)

    def __call__(
        self, particles, scores, state, *, key
    ) -> tuple[Float[Array, "n d"], LearnedPowerState, Diagnostics]:
        """Train with the present power, then move it."""
        trainer = dataclasses.replace(self.trainer, regulariser=PowerNorm(state.power))
        velocities, network, diagnostics = trainer(particles, scores, state.network, key=key)
        power = state.power + self.learning_rate * jnp.sign(_slope(velocities, state.power))
        power = jnp.clip(power, self.lowest, self.highest)
        return velocities, LearnedPowerState(network, power), {**diagnostics, "power": power}

    def fit(self, particles, scores, state, *, view, key):
        """The trained witness is the field."""
        del view
        velocities, state, diagnostics = self(particles, scores, state, key=key)
        return Fit(velocities, WitnessField(state.network.witness), state, diagnostics)

    @property
    def has_field(self):
        """The witness."""
        return True


def _slope(velocities: Float[Array, "n d"], power: Float[Array, ""]) -> Float[Array, ""]:
    """∂/∂p E|v|^q at fixed v: q = p/(p − 1), ∂q/∂p = −1/(p − 1)², |v|^q = |f|ᵖ."""
    tiny = jnp.finfo(velocities.dtype).tiny ** 0.5
    log_sizes = 0.5 * jnp.log(norm_squared(velocities) + tiny)
    rates = jnp.exp(power * log_sizes) * (power - 1) * log_sizes
    return -jnp.mean(rates) / (power - 1) ** 2
