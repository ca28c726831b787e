"""Which particles a run with corrections returns: the flow's, or the corrected ones.

A flow's particles are spread more evenly than independent draws, which is worth keeping if they are
where they should be.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd._support.compilation import compiled
from nvgd._support.pairs import mean_distance
from nvgd._support.particle_groups import even_selection, join_groups
from nvgd.flow.directions.residual import normal_scores

# The flow has strays if its particles reach further than this multiple of any snapshot.
WIDEST = 2.5
# Chains have forgotten their start if no rank correlation with it exceeds this many standard
# errors,
CORRELATION_ERRORS = 5.0
# nor, of few chains, this value.
LARGEST_CORRELATION = 0.9


@compiled
def flow_unless_wrong(
    flowed: Float[Array, "n d"], corrected: Float[Array, "n d"], snapshots: Float[Array, "k m d"]
) -> Float[Array, "n d"]:
    """The flow's particles if they are nearer to the snapshots than the corrected ones.

    Arguments:
        flowed: where the flow left the particles.
        corrected: where the chains that started there have come to.
        snapshots: where the chains were at k earlier moments.
    """
    before, after = even_selection(flowed), even_selection(corrected)
    middle, scales = jnp.mean(after, axis=0), jnp.std(after, axis=0) + 1e-30
    before, after, snapshots = ((x - middle) / scales for x in (before, after, snapshots))

    def distance(x: Float[Array, "m d"]) -> Float[Array, ""]:
        """The energy distance to all snapshots together, up to a constant."""
        return 2 * mean_distance(x, join_groups(snapshots)) - mean_distance(x, x)

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
