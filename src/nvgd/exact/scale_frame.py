"""Coordinates in which scales and means follow a few directions, as in hierarchical models.

In a hierarchical model the conditional distribution of an effect, given the scales of all groups,
is roughly normal; its standard deviation and mean change with the scales. Let t be k directions,
such as the logs of these scales, and w the other coordinates. The frame

    wⱼ = mⱼ(t) + exp(gⱼ(t)) zⱼ

makes the conditional distributions alike: z is about standard normal given any t. Each mⱼ and gⱼ is
a smooth function of every tᵢ that is linear far outside.

The scores determine t, g and m without noise if w is normal given t, and independent in its
coordinates. Then sⱼ = −(wⱼ − mⱼ)/σⱼ², so that

    log σⱼ = ½(log|wⱼ − mⱼ| − log|sⱼ|)      and      mⱼ = wⱼ + σⱼ²sⱼ

at every particle. The directions are those along which the first expression changes most.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from nvgd._support.robust import student_scatter, typical_size
from nvgd.flow.coordinates.adaptive import misfit
from nvgd.flow.coordinates.base import AbstractFrame, AffineFrame
from nvgd.flow.coordinates.driver_search import rotation_onto

# Number of directions t.
NUM_DIRECTIONS = 3
# Each function of tᵢ is a straight line with smooth bends at these knots, this wide.
KNOTS = (-1.5, -0.5, 0.5)
BEND = 0.5
# The functions are constant beyond this many standard deviations of t.
REACH = 8.0
# Ridge penalties per particle, of the slopes that give the directions and of the functions.
SLOPE_PENALTY, FUNCTION_PENALTY = 0.05, 0.02
# Logs of scales are cut off at this distance from their median.
LARGEST_LOG = 3.0
# The frame is used if its misfit is lower than that of no frame by this margin.
MARGIN = 0.03
NUM_TURNS, NUM_REWEIGHTINGS = 2, 3
TINY = 1e-12


class ScaleFrame(AbstractFrame):
    """x = R (t, m(t) + exp(g(t)) z), as defined in the module docstring."""

    rotation: Float[Array, "d d"]
    mean_offsets: Float[Array, " e"]
    mean_weights: Float[Array, "b e"]
    log_offsets: Float[Array, " e"]
    log_weights: Float[Array, "b e"]

    @property
    def _num_directions(self) -> int:
        return len(self.rotation) - len(self.mean_offsets)

    def express(self, particles, scores):
        """(t, z), and the score of their density."""
        number = self._num_directions
        t, w = jnp.split(particles @ self.rotation, [number], axis=1)
        along, others = jnp.split(scores @ self.rotation, [number], axis=1)
        features, slopes = _features(t), _feature_slopes(t)
        scales = jnp.exp(self.log_offsets + features @ self.log_weights)
        z = (w - self.mean_offsets - features @ self.mean_weights) / scales
        others_z = others * scales
        # The derivative along t includes those of m and g, and that of the log determinant.
        by_feature = others @ self.mean_weights.T + (others_z * z + 1) @ self.log_weights.T
        by_direction = (slopes * by_feature).reshape(len(t), -1, number)
        along = along + jnp.sum(by_direction, axis=1)
        return jnp.concatenate([t, z], axis=1), jnp.concatenate([along, others_z], axis=1)

    def restore(self, expressed):
        """x from (t, z)."""
        t, z = jnp.split(expressed, [self._num_directions], axis=1)
        features = _features(t)
        logs = self.log_offsets + features @ self.log_weights
        w = self.mean_offsets + features @ self.mean_weights + jnp.exp(logs) * z
        return jnp.concatenate([t, w], axis=1) @ self.rotation.T

    def log_volumes(self, expressed):
        """Σⱼ gⱼ(t)."""
        return _features(expressed[:, : self._num_directions]) @ jnp.sum(self.log_weights, axis=1)


class ChainFrame(AbstractFrame):
    """The flow's frame, then a `ScaleFrame`, then an affine one: x = T(S(A(u)))."""

    outer: AbstractFrame
    scales: ScaleFrame
    inner: AffineFrame

    def express(self, particles, scores):
        """u and the score of its density."""
        return self.inner.express(*self.scales.express(*self.outer.express(particles, scores)))

    def restore(self, expressed):
        """x from u."""
        return self.outer.restore(self.scales.restore(self.inner.restore(expressed)))

    def log_volumes(self, expressed):
        """Log determinants of the maps that are not affine."""
        middle = self.inner.restore(expressed)
        volumes = self.scales.log_volumes(middle)
        return volumes + self.outer.log_volumes(self.scales.restore(middle))


def with_scales(
    outer: AbstractFrame, particles: Float[Array, "n d"], scores: Float[Array, "n d"]
) -> AbstractFrame:
    """Improve a frame by a `ScaleFrame`, if the scores are closer to a normal density's in it."""
    u, s = outer.express(particles, scores)
    num_directions = min(NUM_DIRECTIONS, u.shape[1] // 2)
    if not num_directions:
        return outer
    rotation = _directions(u, s, num_directions)
    fitted = _fit(u @ rotation, s @ rotation, rotation, num_directions)
    none = jax.tree.map(jnp.zeros_like, fitted)
    none = eqx.tree_at(lambda frame: frame.rotation, none, rotation)
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), none, fitted)
    misfits = jax.lax.map(lambda frame: misfit(frame, u, s), both)
    is_better = misfits[1] < misfits[0] - MARGIN
    scales = jax.tree.map(lambda new, old: jnp.where(is_better, new, old), fitted, none)
    expressed, _ = scales.express(u, s)
    return ChainFrame(outer, scales, AffineFrame.of(*student_scatter(expressed, 3)))


def _directions(u: Float[Array, "n d"], s: Float[Array, "n d"], number: int) -> Float[Array, "d d"]:
    """A rotation whose first columns are the directions along which scales change most."""
    logs = _log_scales(u - jnp.mean(u, axis=0), s)
    positions = jnp.clip(u, -LARGEST_LOG, LARGEST_LOG)
    positions = positions - jnp.mean(positions, axis=0)
    gram = positions.T @ positions / len(u) + SLOPE_PENALTY * jnp.eye(u.shape[1], dtype=u.dtype)
    slopes = _solve(gram, positions.T @ (logs - jnp.mean(logs, axis=0)) / len(u))
    directions = jnp.linalg.svd(slopes)[0]
    rotation = jnp.eye(len(slopes), dtype=u.dtype)
    for i in range(number):
        # The next direction, in the coordinates that are left.
        left = rotation.T[i:] @ directions[:, i]
        turn = rotation_onto(left / (jnp.linalg.norm(left) + TINY))
        rotation = rotation.at[:, i:].set(rotation[:, i:] @ turn)
    return rotation


def _fit(
    turned: Float[Array, "n d"], s: Float[Array, "n d"], rotation: Float[Array, "d d"], number: int
) -> ScaleFrame:
    """Fit m and g in rotated coordinates, by turns."""
    t, w = jnp.split(turned, [number], axis=1)
    scores = s[:, number:]
    features = _features(t)
    columns = jnp.concatenate([jnp.ones_like(t[:, :1]), features], axis=1)

    def improve(_: Array | int, fits: tuple[Array, Array]) -> tuple[Array, Array]:
        means, _ = fits
        logs = _log_scales(w - columns @ means, scores)
        log_fit = _robust_ridge(columns, logs, jnp.ones_like(logs))
        scales = jnp.exp(columns @ log_fit)
        weights = scales**-2 / jnp.mean(scales**-2, axis=0)
        return _robust_ridge(columns, w + scales**2 * scores, weights), log_fit

    zeros = jnp.zeros((columns.shape[1], w.shape[1]), w.dtype)
    start = zeros.at[0].set(jnp.mean(w, axis=0))
    means, logs = jax.lax.fori_loop(0, NUM_TURNS, improve, (start, zeros))
    return ScaleFrame(rotation, means[0], means[1:], logs[0], logs[1:])


def _features(t: Float[Array, "n k"]) -> Float[Array, "n b"]:
    """tᵢ, and a smooth bend at every knot."""
    t = jnp.clip(t, -REACH, REACH)
    bends = [BEND * jax.nn.softplus((t - knot) / BEND) for knot in KNOTS]
    return jnp.concatenate([t, *bends], axis=1)


def _feature_slopes(t: Float[Array, "n k"]) -> Float[Array, "n b"]:
    """The derivative of each of `_features` with respect to its tᵢ."""
    bends = [jax.nn.sigmoid((t - knot) / BEND) for knot in KNOTS]
    slopes = jnp.concatenate([jnp.ones_like(t), *bends], axis=1)
    return jnp.where(jnp.tile(jnp.abs(t) < REACH, 1 + len(KNOTS)), slopes, 0.0)


def _log_scales(residuals: Float[Array, "n e"], scores: Float[Array, "n e"]) -> Float[Array, "n e"]:
    """½(log|r| − log|s|), without outliers."""
    logs = 0.5 * (jnp.log(jnp.abs(residuals) + TINY) - jnp.log(jnp.abs(scores) + TINY))
    middle = jnp.mean(jnp.clip(logs, -2 * LARGEST_LOG, 2 * LARGEST_LOG), axis=0)
    return jnp.clip(logs, middle - LARGEST_LOG, middle + LARGEST_LOG)


def _robust_ridge(
    columns: Float[Array, "n b"], values: Float[Array, "n e"], weights: Float[Array, "n e"]
) -> Float[Array, "b e"]:
    """Ridge regressions, one per column of values, with Cauchy weights; the offset is free."""
    number = columns.shape[1]
    penalty = FUNCTION_PENALTY * len(columns) * jnp.eye(number, dtype=columns.dtype)
    penalty = penalty.at[0, 0].set(1e-4)

    def iterate(_: Array | int, fit: Array) -> Array:
        residuals = (values - columns @ fit) * jnp.sqrt(weights)
        sizes = residuals / (2 * typical_size(residuals) + 1e-4)
        counts = weights / (1 + sizes**2)
        gram = jnp.einsum("ni,nj,ne->eij", columns, columns, counts) + penalty
        return jnp.squeeze(_solve(gram, (columns.T @ (counts * values)).T[..., None]), axis=-1).T

    zeros = jnp.zeros((number, values.shape[1]), values.dtype)
    start = zeros.at[0].set(jnp.mean(values, axis=0))
    return jax.lax.fori_loop(0, NUM_REWEIGHTINGS, iterate, start)


def _solve(
    matrix: Float[Array, "*k d d"], values: Float[Array, "*k d c"]
) -> Float[Array, "*k d c"]:
    """A⁻¹b for a positive definite A."""
    return cho_solve(cho_factor(matrix, lower=True), values)
