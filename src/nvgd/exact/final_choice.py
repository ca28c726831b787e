"""Choice between the flow's particles and the corrected ones at the end of a run.

A flow's particles are spread more evenly than independent draws. They are returned if they agree
with the target as well as the corrected particles do.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from nvgd._support.compilation import quickly_compiled
from nvgd._support.pairs import mean_distance
from nvgd._support.particle_groups import even_selection, join_groups
from nvgd.flow.directions.residual import normal_scores

# The flow has strays if its range exceeds this multiple of the snapshots' range in a coordinate.
WIDEST = 1.3
# Chains have forgotten their start if all rank correlations with it are below this many standard
# errors,
CORRELATION_ERRORS = 5.0
# and below this value, which matters for few chains.
LARGEST_CORRELATION = 0.9


@quickly_compiled
def flow_unless_wrong(
    flowed: Float[Array, "n d"], corrected: Float[Array, "n d"], snapshots: Float[Array, "k m d"]
) -> Float[Array, "n d"]:
    """The flow's particles if they are nearer to the snapshots than the corrected ones.

    Two more conditions apply: the chains have forgotten their start, and the flow has no strays.

    Arguments:
        flowed: particles at the end of the flow.
        corrected: final states of the chains that started from `flowed`.
        snapshots: k earlier states of these chains.
    """
    before, after = even_selection(flowed), even_selection(corrected)
    middle, scales = jnp.mean(after, axis=0), jnp.std(after, axis=0) + 1e-30
    before, after, snapshots = ((x - middle) / scales for x in (before, after, snapshots))

    def distance(x: Float[Array, "m d"]) -> Float[Array, ""]:
        """Energy distance to the pooled snapshots, up to a constant."""
        return 2 * mean_distance(x, join_groups(snapshots)) - mean_distance(x, x)

    # Rank correlations, because coordinates with heavy tails can correlate by chance.
    correlations = jnp.mean(normal_scores(before) * normal_scores(after), axis=0)
    allowed = min(CORRELATION_ERRORS / len(before) ** 0.5, LARGEST_CORRELATION)
    is_forgotten = jnp.max(jnp.abs(correlations)) < allowed
    # The energy distance is insensitive to a single stray.
    has_strays = jnp.any(
        jnp.max(jnp.abs(before), axis=0) > WIDEST * jnp.max(jnp.abs(snapshots), axis=(0, 1))
    )
    is_nearer = distance(before) < distance(after)
    return jnp.where(is_forgotten & is_nearer & ~has_strays, flowed, corrected)
