"""Step sizes that follow the local scale of the target.

A step size that suits most of the target is too large in a narrow region, such as the neck of a
funnel: chains do not enter it, and particles inside reject every move. Here the step size is drawn
anew in each step, around ε/r(u), where r(u) grows with the score at u:

    log ε' = log ε − log r(u) + σξ,  ξ ~ N(0, 1),     r(u) = (1 + mean((s/c)⁴))^¼,  s = ∇log p(u)

The target is kept if the acceptance ratio includes that of the densities of ε' at the proposal and
at u (Bou-Rabee, Carpenter and Marsden, "GIST: Gibbs self-tuning for locally adaptive Hamiltonian
Monte Carlo", 2024). The fourth power gives weight to the few coordinates that are narrow.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

# σ and c.
DEVIATION = 0.5
TYPICAL_SCORE = 1.5


def log_roughness(scores: Float[Array, "n d"]) -> Float[Array, " n"]:
    """Log r(u), from the scores in coordinates of unit spread."""
    return 0.25 * jnp.log1p(jnp.mean((scores / TYPICAL_SCORE) ** 4, axis=1))


def log_ratio(
    log_sizes: Float[Array, " n"],
    log_size: Float[Array, ""],
    scores: Float[Array, "n d"],
    proposed_scores: Float[Array, "n d"],
) -> Float[Array, " n"]:
    """Log density of the step sizes at the proposals, minus that at the current positions.

    Arguments:
        log_sizes: log ε' of every particle.
        log_size: log ε.
        scores, proposed_scores: scores at u and at the proposals.
    """
    here, there = (
        (log_sizes - log_size + log_roughness(s)) / DEVIATION for s in (scores, proposed_scores)
    )
    return 0.5 * (here**2 - there**2)
