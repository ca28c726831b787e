"""Training on many small views of the data: stochastic Stein discrepancies."""

import equinox as eqx
import jax
import jax.numpy as jnp

from nvgd._support.errors import InputError, check_count, check_kind, plain
from nvgd.flow.aim import check_batches
from nvgd.flow.directions.base import AbstractDirection, Capabilities, Fit, WitnessField
from nvgd.flow.directions.neural import Neural, NeuralState


class Stochastic(AbstractDirection[NeuralState]):
    """The witness is trained on scores from batches that change within its inner loop.

        E_B RSD_B(f) = RSD(f),   RSD_B(f) = mean f·s_B + div f − g(f)
        s_B(x) = ∇log prior(x) + (N/B) Σ_{i∈B} ∇log p(yᵢ|x)

    The discrepancy is linear in the score, so that an unbiased score makes it unbiased, whatever
    the batch (Gorham, Raj and Mackey, 2020, who give every particle a batch of its own). Plain
    `Neural` keeps the step's batch fixed while it trains, and learns its noise with it;
    here ascent step t uses batch t mod k of k fresh ones. Validation uses their mean and the
    step's.

    Choose it if batches are so small that the field follows their noise, and k more gradients per
    particle are affordable.

    Arguments:
        trainer: the network, and how it is trained.
        num_batches: k.
        independent: a batch for each particle alone, as Gorham et al. have it.
    """

    trainer: Neural = Neural()
    num_batches: int = eqx.field(default=4, converter=plain)
    independent: bool = eqx.field(default=False, converter=plain)

    def __check_init__(self):
        check_kind("trainer", self.trainer, Neural, "Neural()")
        check_count("num_batches", self.num_batches)

    def init(self, particles, *, key):
        """The trainer's."""
        return self.trainer.init(particles, key=key)

    def fit(self, particles, scores, state, *, view, key):
        """Scores from k fresh batches, then training, then the witness at the particles."""
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
        """A witness, trained on scores that it asks the target for."""
        return Capabilities(has_field=True, looks_again=True)

    def extra_gradients(self, num_particles):
        """One per particle and batch."""
        return self.num_batches * num_particles

    def check_target(self, target):
        """Minibatches, from arrays in memory."""
        check_batches(target, "Stochastic")
