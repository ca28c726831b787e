"""The parameters of a hidden Markov model, with the states summed out."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid
from jax.scipy.stats import norm

from benchmarks.posteriors.models_hierarchical import half_normal_of_log
from benchmarks.posteriors.posterior import BenchmarkPosterior

NUM_OBSERVATIONS = 300


def hidden_markov() -> BenchmarkPosterior:
    """Two states with unit normal emissions over (μ₁, log(μ₂ − μ₁), logit a₁, logit a₂).

    aₖ is the probability of staying in state k. μ₁ ~ N(0, 2²), μ₂ − μ₁ ~ N⁺(4), a ~ Beta(4, 2).
    The positive difference of the means orders the states, so their labels cannot switch.
    """
    values = _simulated()

    def log_density(x):
        means = jnp.stack([x[0], x[0] + jnp.exp(x[1])])
        log_stay, log_leave = log_sigmoid(x[2:]), log_sigmoid(-x[2:])
        # Rows: from; columns: to.
        log_transition = jnp.array([[log_stay[0], log_leave[0]], [log_leave[1], log_stay[1]]])
        log_emissions = norm.logpdf(values[:, None], means)

        def forward(log_joint, log_emission):
            arrived = jax.nn.logsumexp(log_joint[:, None] + log_transition, axis=0)
            return arrived + log_emission, None

        start = log_emissions[0] - np.log(2.0)
        log_joint, _ = jax.lax.scan(forward, start, log_emissions[1:])
        prior = norm.logpdf(x[0], 0.0, 2.0) + half_normal_of_log(x[1], 4.0)
        # The Jacobian of the logit turns Beta(4, 2) into these powers.
        prior += jnp.sum(4 * log_stay + 2 * log_leave)
        return prior + jax.nn.logsumexp(log_joint)

    return BenchmarkPosterior(
        "hidden_markov",
        4,
        f"hidden Markov model of two states, {NUM_OBSERVATIONS} observations",
        log_density,
    )


def _simulated() -> np.ndarray:
    rng = np.random.default_rng(300)
    means, stay = (-0.5, 1.5), (0.9, 0.8)
    states = np.zeros(NUM_OBSERVATIONS, int)
    for time in range(1, NUM_OBSERVATIONS):
        state = states[time - 1]
        states[time] = state if rng.random() < stay[state] else 1 - state
    return rng.normal(np.take(means, states), 1.0)
