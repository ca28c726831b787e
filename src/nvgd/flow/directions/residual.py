"""NVGD in whitened coordinates: the score, a normal repulsion, and a network for the remainder."""

import dataclasses
from statistics import NormalDist
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int, PRNGKeyArray

from nvgd._support.errors import InputError, check_kind
from nvgd._support.particle_groups import by_group, first_of_groups, in_blocks
from nvgd._support.robust import can_fit_scatter, order_of_rows
from nvgd.flow.directions.base import AbstractDirection, Capabilities, Fit, norm_squared
from nvgd.flow.directions.neural import Neural, NeuralState
from nvgd.stein.divergences import choose_divergence, values_and_divergences
from nvgd.stein.regularisers import is_quadratic
from nvgd.stein.witnesses import MLP, Witness

# While the network gains less than this per coordinate, it finds no deviation from normality, and
# is trained in one of SELDOM steps only.
SMALL_GAIN = 0.003
SELDOM = 5
# A network of this size needs no more particles to learn from.
MOST_TRAINED = 16_384
# In more dimensions there is no network unless a witness is given: the divergence of a field cannot
# be estimated from a few hundred particles there, and training would take most of the time.
MOST_DIMENSIONS = 1000
# Decay of the running means behind the network's weight, which average about ten steps.
EVIDENCE_MEMORY = 0.9


class ResidualState(NamedTuple):
    """The network r, and running means of E[−r·ξ + div r] (`gain`) and E|r|² (`size`).

    The network is None in more than `MOST_DIMENSIONS` dimensions, and for few noisy particles.
    """

    network: NeuralState | None
    gain: Float[Array, ""]
    size: Float[Array, ""]
    step: Int[Array, ""]

    @property
    def witness(self) -> Witness | None:
        """The network r, callable at a position (d,) in the coordinates of the flow."""
        return None if self.network is None else self.network.witness


class Residual(AbstractDirection[ResidualState]):
    """The score plus a normal repulsion plus a network: f(u) = ∇log p(u) + ξ(u) + β r(u).

    ξ approximates −∇log q by that of a normal q: each coordinate is replaced by the normal quantile
    of its rank. If the particles are standard normal, ξ is the coordinate itself. Its mean is
    always zero and its variance one, and it is bounded, so that the score pulls strays back. The
    network r, initially zero, learns the remainder −∇log q − ξ by maximising

        E[−r·ξ + div r − ½|r|²]

    which is the regularised Stein discrepancy of f up to a constant and needs no second derivatives
    of log p. The weight β ∈ [0, 1] maximises the same objective at particles on which the network
    has not been trained yet: a network that does not help gets weight zero. While it gains
    nothing, it is trained in every fifth step only. In more than 1,000 dimensions, and with noisy
    scores and fewer than 1.25 particles per dimension, there is no network, unless the trainer has
    a witness. In the latter case ξ is the coordinate itself, clipped, instead of its rank's
    quantile: ranks would take longer than the gradients of small neural networks. A mover may then
    replace ξ by noise (`Capped`).

    Intended for coordinates in which the particles have unit spread, such as `Adaptive`.

    Arguments:
        trainer: a `Neural` direction, which provides the network and its training.

    Examples:
        >>> direction = nvgd.directions.Residual(nvgd.directions.Neural(learning_rate=1e-3))
        >>> flow = nvgd.ParticleFlow(nvgd.coordinates.Adaptive(), direction, nvgd.movers.Capped())
    """

    trainer: Neural

    def __check_init__(self):
        check_kind("trainer", self.trainer, Neural, "directions.Neural()")
        if not is_quadratic(self.trainer.regulariser):
            raise InputError(
                "Residual splits the field into parts, which only ½|f|² allows: leave regulariser "
                "out, or use NVGD.paper(regulariser=...)."
            )

        if self.trainer.reinitialise:
            raise InputError(
                "Residual weighs its network by what it has learned so far, which reinitialise "
                "would erase: leave it out, or use NVGD.paper(reinitialise=True)."
            )

    def init(self, particles: Float[Array, "n d"], *, key: PRNGKeyArray) -> ResidualState:
        """A network that is zero everywhere, or the trainer's witness if it has one."""
        trainer, zero = self.trainer, jnp.zeros((), particles.dtype)
        if trainer.witness is None:
            if particles.shape[1] > MOST_DIMENSIONS:
                return ResidualState(None, zero, zero, jnp.array(0))
            network = MLP(particles.shape[1], width=trainer.width, depth=trainer.depth, key=key)
            trainer = dataclasses.replace(trainer, witness=network.zeroed())
        network = trainer.init(particles, key=key)
        return ResidualState(network, zero, zero, jnp.array(0))

    def init_noisy(self, particles, *, key):
        """Without a network if particles are few: it cannot learn from them through the noise."""
        state = self.init(particles, key=key)
        is_given = self.trainer.witness is not None
        return (
            state if is_given or can_fit_scatter(*particles.shape) else state._replace(network=None)
        )

    def fit(self, particles, scores, state, *, view, key):
        """Sum the three terms, of which the network is weighed and trained first."""
        is_quick = view is not None and view.is_noisy and not can_fit_scatter(*particles.shape)
        repulsion = clipped_normal(particles) if is_quick else normal_scores(particles)
        velocities = scores + repulsion
        inner_steps, weight = jnp.array(0), jnp.zeros((), particles.dtype)
        if state.network is not None:
            part, state, inner_steps, weight = self._learn(particles, repulsion, state, key)
            velocities = velocities + part
        diagnostics = {
            "stein_discrepancy": affine_discrepancy(particles, scores),
            "inner_steps": inner_steps,
            "network_weight": weight,
        }
        state = state._replace(step=state.step + 1)
        return Fit(velocities, None, state, diagnostics, scores if is_quick else None)

    def _learn(
        self, particles: Array, repulsion: Array, state: ResidualState, key: PRNGKeyArray
    ) -> tuple[Array, ResidualState, Array, Array]:
        """β r(u), the next state but for its step, the number of training steps, and β."""
        old = state.network
        assert old is not None
        evidence_key, training_key = jax.random.split(key)
        shown, shown_scores = (
            first_of_groups(values, MOST_TRAINED) for values in (particles, -repulsion)
        )
        gain, size = self._evidence(shown, shown_scores, old, evidence_key)
        gain = EVIDENCE_MEMORY * state.gain + (1 - EVIDENCE_MEMORY) * gain
        size = EVIDENCE_MEMORY * state.size + (1 - EVIDENCE_MEMORY) * size
        weight = jnp.clip(gain / (size + 1e-9), 0.0, 1.0)
        # Above a few dimensions training uses random probes, even where the trace has a closed
        # form: their noise keeps the network from overfitting individual particles.
        estimator = choose_divergence(self.trainer.divergence, particles.shape[1])
        trainer = dataclasses.replace(self.trainer, divergence=estimator)
        is_due = (gain > SMALL_GAIN * particles.shape[1]) | (state.step % SELDOM == 0)

        def train() -> tuple[NeuralState, Array]:
            network, diagnostics = trainer.train(
                particles, -repulsion, old, key=training_key, most=MOST_TRAINED
            )
            return network, diagnostics["inner_steps"]

        network, inner_steps = jax.lax.cond(is_due, train, lambda: (old, jnp.array(0)))
        part = weight * in_blocks(network.witness, particles)
        state = state._replace(network=network, gain=gain, size=size)
        return part, state, inner_steps, weight

    def trains(self, state):
        """Unless there are too few particles for a network."""
        return state.network is not None

    @property
    def capabilities(self):
        """No field, because ranks are defined at the particles only."""
        return Capabilities(trains=True)

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
    """Evenly spaced quantiles of a normal distribution, sorted, scaled to unit variance."""
    quantiles = ndtri((jnp.arange(num_particles, dtype=dtype) + 0.5) / num_particles)
    return quantiles / jnp.sqrt(jnp.mean(quantiles**2))


def normal_scores(particles: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Normal quantiles of the coordinates' ranks within each group, with unit variance."""

    def of_group(particles: Float[Array, "m d"]) -> Float[Array, "m d"]:
        quantiles = normal_quantiles(len(particles), particles.dtype)
        order = order_of_rows(particles)
        columns = jnp.arange(particles.shape[1])
        return jnp.zeros_like(particles).at[order, columns].set(quantiles[:, None])

    return by_group(of_group, particles)


def clipped_normal(particles: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """The coordinates themselves, clipped as far out as the quantiles of `normal_scores` go.

    For many coordinates of few particles, whose ranks take longer than the gradient of a network.
    """
    largest = NormalDist().inv_cdf(1 - 0.5 / max(len(particles), 2))
    return jnp.clip(particles, -largest, largest)


def affine_discrepancy(
    particles: Float[Array, "n d"], scores: Float[Array, "n d"]
) -> Float[Array, ""]:
    """Regularised Stein discrepancy of the best affine witness on held-out particles.

    The discrepancy of f itself would need second derivatives of log p. A witness
    fⱼ(u) = aⱼuⱼ + bⱼ, which detects shifts and wrong variances, has its optimum in closed form,

        aⱼ = (E[uⱼsⱼ] + 1 − E[uⱼ]E[sⱼ])/Var(uⱼ),   bⱼ = E[sⱼ] − aⱼE[uⱼ]

    The witness is fitted to the particles of even index and evaluated at the others, and vice
    versa. The result is a lower bound of the discrepancy, about zero or below at convergence.
    """
    num = len(particles)
    if num < 2:
        return jnp.full((), jnp.nan, particles.dtype)
    is_even = np.arange(num) % 2 == 0
    sizes = np.array([is_even.sum(), num - is_even.sum()])
    average = jnp.asarray(np.stack([is_even, ~is_even]) / sizes[:, None], particles.dtype)
    mean, mean_score = average @ particles, average @ scores
    square = average @ particles**2
    product = average @ (particles * scores)
    # The term 1/n shrinks the witness, which keeps it stable with very few particles.
    variances = square - mean**2 + 1 / num
    slopes = (product - mean * mean_score + 1) / variances
    # Means over the other half of fⱼsⱼ and fⱼ², from its moments: one pass over the particles.
    shift = mean[::-1] - mean
    with_score = slopes * (product[::-1] - mean * mean_score[::-1])
    with_score += mean_score * mean_score[::-1]
    squared = slopes**2 * (square[::-1] - mean[::-1] ** 2 + shift**2)
    squared += 2 * slopes * mean_score * shift + mean_score**2
    values = jnp.sum(with_score - 0.5 * squared + slopes, axis=1)
    return jnp.asarray(sizes[::-1] / num, particles.dtype) @ values
