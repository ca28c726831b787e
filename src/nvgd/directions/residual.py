"""NVGD in whitened coordinates: the score, a normal repulsion, and a network for what remains."""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd.crowds import in_crowds
from nvgd.directions.base import (
    AbstractDirection,
    AbstractField,
    Diagnostics,
    Fit,
    norm_squared,
)
from nvgd.directions.neural import NeuralDirection, NeuralState
from nvgd.divergences import choose_divergence, values_and_divergences
from nvgd.witnesses import MLP, Witness

# The network's weight comes from evidence averaged over about ten steps.
MEMORY = 0.9


class ResidualState(NamedTuple):
    """The network, and the evidence for it: running means of E[r·q + div r] and E|r|²."""

    network: NeuralState
    gain: Float[Array, ""]
    size: Float[Array, ""]


class _ResidualField(AbstractField):
    """The particles' coordinates in order, the network, and its weight."""

    ordered: Float[Array, "n d"]
    network: Witness
    weight: Float[Array, ""]

    def __call__(self, positions, scores):
        quantiles = normal_quantiles(len(self.ordered), positions.dtype)
        # Beyond the outermost particle its own quantile: strays are pulled back.
        repulsion = jax.vmap(
            lambda x, known: jnp.interp(x, known, quantiles), in_axes=1, out_axes=1
        )(positions, self.ordered)
        return scores + repulsion + self.weight * jax.vmap(self.network)(positions)


class ResidualDirection(AbstractDirection[ResidualState]):
    """f(u) = ∇log p(u) + ξ(u) + β r(u), with r = −∇log q − ξ learned.

    ξ stands for −∇log q of a normal q: for each coordinate of a particle the normal quantile of
    its rank. It is the coordinate itself if the particles are normal, its mean is zero and its
    variance one always, and it pulls strays back. A network r, zero at first, learns the rest from

        E[−r·ξ + div r − ½|r|²]

    which is the regularised Stein discrepancy of f up to a constant; no second derivatives of
    log p are needed. β ∈ [0, 1] is what the same objective, evaluated at particles before the
    network is trained on them, finds best: a network that does not help is not listened to.

    Meant for coordinates in which the particles have unit spread, such as `Adaptive`.

    Arguments:
        trainer: the network, and how it is trained.
    """

    trainer: NeuralDirection

    min_particles: ClassVar[int] = 2

    def init(self, particles: Float[Array, "n d"], *, key: PRNGKeyArray) -> ResidualState:
        """A network that is zero everywhere, unless the trainer has a witness of its own."""
        trainer = self.trainer
        if trainer.witness is None:
            network = MLP(particles.shape[1], width=trainer.width, depth=trainer.depth, key=key)
            trainer = dataclasses.replace(trainer, witness=network.zeroed())
        network = trainer.init(particles, key=key)
        zero = jnp.zeros((), particles.dtype)
        return ResidualState(network, zero, zero)

    def __call__(
        self,
        particles: Float[Array, "n d"],
        scores: Float[Array, "n d"],
        state: ResidualState,
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "n d"], ResidualState, Diagnostics]:
        """Weigh the network as it is, train it on, and add up."""
        evidence_key, training_key = jax.random.split(key)
        repulsion = normal_scores(particles)
        gain, size = self._evidence(particles, -repulsion, state.network, evidence_key)
        gain = MEMORY * state.gain + (1 - MEMORY) * gain
        size = MEMORY * state.size + (1 - MEMORY) * size
        weight = jnp.clip(gain / (size + 1e-9), 0.0, 1.0)
        # Above a few dimensions with probes, even where the trace has a closed form: their noise
        # keeps the network from fitting the particles one by one.
        estimator = choose_divergence(self.trainer.divergence, particles.shape[1])
        trainer = dataclasses.replace(self.trainer, divergence=estimator)
        network, diagnostics = trainer.train(particles, -repulsion, state.network, key=training_key)
        velocities = scores + repulsion + weight * jax.vmap(network.witness)(particles)
        diagnostics = {
            # The discrepancy at its maximum, where f is the flow's own direction (paper, sec. 3).
            "stein_discrepancy": 0.5 * jnp.mean(norm_squared(velocities)),
            "inner_steps": diagnostics["inner_steps"],
            "network_weight": weight,
        }
        return velocities, ResidualState(network, gain, size), diagnostics

    def fit(self, particles, scores, state, *, view, key):
        """The same; between particles and beyond them the repulsion is interpolated."""
        del view
        velocities, state, diagnostics = self(particles, scores, state, key=key)
        field = _ResidualField(
            jnp.sort(particles, axis=0), state.network.witness, diagnostics["network_weight"]
        )
        return Fit(velocities, field, state, diagnostics)

    @property
    def can_carry(self):
        """Piecewise linear where it is of ranks: too rough for densities, not for draws."""
        return True

    def _evidence(
        self, particles: Array, scores: Array, network: NeuralState, key: PRNGKeyArray
    ) -> tuple[Array, Array]:
        num_particles, dim = particles.shape
        estimator = choose_divergence(self.trainer.divergence, dim, network.witness)
        probes = estimator.probes(key, num_particles, dim, particles.dtype)
        values, divergences = values_and_divergences(
            network.witness, particles, probes, estimator.weight
        )
        gain = jnp.mean(jnp.sum(values * scores, axis=-1) + divergences)
        return gain, jnp.mean(norm_squared(values))


def normal_quantiles(num_particles: int, dtype: jnp.dtype) -> Float[Array, " n"]:
    """Quantiles of a normal distribution, in order, with unit variance."""
    quantiles = ndtri((jnp.arange(num_particles, dtype=dtype) + 0.5) / num_particles)
    return quantiles / jnp.sqrt(jnp.mean(quantiles**2))


def normal_scores(particles: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """The normal quantile of each coordinate's rank in the particle's crowd, with unit variance."""

    def of_crowd(particles: Float[Array, "m d"]) -> Float[Array, "m d"]:
        quantiles = normal_quantiles(len(particles), particles.dtype)
        order = jnp.argsort(particles, axis=0)
        columns = jnp.arange(particles.shape[1])
        return jnp.zeros_like(particles).at[order, columns].set(quantiles[:, None])

    return in_crowds(of_crowd, particles)
