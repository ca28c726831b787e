"""Which particles a run with corrections returns: the flow's, or the corrected ones."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd.crowds import joined, selection
from nvgd.directions.residual import normal_scores
from nvgd.metrics import mean_distance

# The flow has strays if its particles reach further than so many times any snapshot.
WIDEST = 2.5
# Particles that are still correlated with themselves by more standard errors have not forgotten;
CORRELATION_ERRORS = 5.0
# nor those of a few that are correlated by more than this.
LARGEST_CORRELATION = 0.9


def flow_unless_wrong(
    flowed: Float[Array, "n d"], corrected: Float[Array, "n d"], snapshots: Float[Array, "k m d"]
) -> Float[Array, "n d"]:
    """The flow's particles if they are nearer to the snapshots than the corrected ones."""
    before, after = selection(flowed), selection(corrected)
    middle, scales = jnp.mean(after, axis=0), jnp.std(after, axis=0) + 1e-30
    before, after, snapshots = ((x - middle) / scales for x in (before, after, snapshots))

    def distance(x: Float[Array, "m d"]) -> Float[Array, ""]:
        """The energy distance to all snapshots together, up to a constant."""
        return 2 * mean_distance(x, joined(snapshots)) - mean_distance(x, x)

    # Of ranks: a coordinate with heavy tails correlates by chance alone.
    correlations = jnp.mean(normal_scores(before) * normal_scores(after), axis=0)
    allowed = min(CORRELATION_ERRORS / len(before) ** 0.5, LARGEST_CORRELATION)
    is_forgotten = jnp.max(jnp.abs(correlations)) < allowed
    # An energy distance does not see a single stray.
    has_strays = jnp.any(
        jnp.max(jnp.abs(before), axis=0) > WIDEST * jnp.max(jnp.abs(snapshots), axis=(0, 1))
    )
    is_nearer = distance(before) < distance(after)
    return jnp.where(is_forgotten & is_nearer & ~has_strays, flowed, corrected)
