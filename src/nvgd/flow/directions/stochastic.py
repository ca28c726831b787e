"""Training on several minibatches per step: stochastic Stein discrepancies."""

import equinox as eqx
import jax
import jax.numpy as jnp

from nvgd._support.errors import InputError, check_count, check_kind, plain
from nvgd.flow.aim import check_batches
from nvgd.flow.directions.base import AbstractDirection, Capabilities, Fit, WitnessField
from nvgd.flow.directions.neural import Neural, NeuralState


class Stochastic(AbstractDirection[NeuralState]):
    """Trains the witness on minibatches that change within the inner loop.

        E_B RSD_B(f) = RSD(f),   RSD_B(f) = mean f·s_B + div f − g(f)
        s_B(x) = ∇log prior(x) + (N/B) Σ_{i∈B} ∇log p(yᵢ|x)

    The discrepancy is linear in the score, so an unbiased score gives an unbiased discrepancy for
    any batch (Gorham, Raj and Mackey, 2020, who use one batch per particle). `Neural` keeps the
    step's batch fixed during training and fits its noise too. Here ascent step t uses batch t mod k
    of k fresh batches. Validation uses the mean score of these and the step's batch.

    Choose it if batches are so small that the field follows their noise, and k more gradients per
    particle are affordable.

    Arguments:
        trainer: a `Neural` direction, which provides the network and its training, with g its
            regulariser.
        num_batches: k.
        independent: whether each particle gets its own batch, as in Gorham et al.

    Examples:
        >>> direction = nvgd.directions.Stochastic(nvgd.directions.Neural(), num_batches=4)
    """

    trainer: Neural = Neural()
    num_batches: int = eqx.field(default=4, converter=plain)
    independent: bool = eqx.field(default=False, converter=plain)

    def __check_init__(self):
        check_kind("trainer", self.trainer, Neural, "Neural()")
        check_count("num_batches", self.num_batches)

    def init(self, particles, *, key):
        """State of the trainer."""
        return self.trainer.init(particles, key=key)

    def fit(self, particles, scores, state, *, view, key):
        """Evaluate scores on k fresh batches, train, and evaluate the witness."""
        if view is None:
            raise InputError(
                "Stochastic draws batches from the target: it works inside a ParticleFlow only."
            )
        batch_key, training_key = jax.random.split(key)
        alternatives = jax.lax.map(
            lambda key: view.refreshed(particles, independent=self.independent, key=key),
            jax.random.split(batch_key, self.num_batches),
        )
        mean = (scores + jnp.sum(alternatives, axis=0)) / (self.num_batches + 1)
        state, diagnostics = self.trainer.train(
            particles, mean, state, key=training_key, alternatives=alternatives
        )
        field = WitnessField(state.witness)
        return Fit(field(particles, scores), field, state, diagnostics)

    @property
    def capabilities(self):
        """The witness is a field; training evaluates further scores."""
        return Capabilities(has_field=True, evaluates_target=True, trains=True)

    def extra_gradients(self, num_particles):
        """One per particle and batch."""
        return self.num_batches * num_particles

    def check_target(self, target):
        """Require minibatches from arrays in memory."""
        check_batches(target, "Stochastic")
