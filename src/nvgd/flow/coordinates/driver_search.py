"""Search for a driver, the direction along which a target is a funnel, from the scores.

If the density is a funnel (`driver_frame`), the relations below hold exactly at every particle. A
few hundred particles at any positions then determine t, a, m and c to many digits.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from nvgd._support.robust import sums, typical_size, whiten
from nvgd.flow.coordinates.base import AffineFrame
from nvgd.flow.coordinates.driver_frame import DriverFrame, bounded_exponent

# Largest |aⱼ|: a scale that changes by more than e³ per standard deviation is implausible.
LARGEST_SLOPE = 3.0
# Prior standard deviation of aⱼ around the slope estimated from the particles.
SLOPE_DEVIATION = 0.5
TINY = 1e-12


class _Given(NamedTuple):
    """Particles and scores in whitened coordinates."""

    positions: Float[Array, "n d"]
    scores: Float[Array, "n d"]


class _Split(NamedTuple):
    """Particles split along a direction into t and the other coordinates, for given slopes a."""

    rotation: Float[Array, "d d"]
    unit: Float[Array, ""]
    offsets: Float[Array, " e"]
    tilts: Float[Array, " e"]
    t: Float[Array, " n"]
    residuals: Float[Array, "n e"]
    score_along: Float[Array, " n"]
    scores: Float[Array, "n e"]


class _Driver(NamedTuple):
    direction: Float[Array, " d"]
    slopes: Float[Array, " e"]
    split: _Split
    is_held: Bool[Array, ""]


def find_driver(
    particles: Float[Array, "n d"],
    scores: Float[Array, "n d"],
    whitened: AffineFrame,
    covector: Float[Array, " d"],
    slopes: Float[Array, " e"],
    is_known: Bool[Array, ""],
    inertia: Float[Array, " k"],
) -> DriverFrame:
    """Driver frames, one per entry of `inertia`, stacked along the first axis.

    With inertia zero the search refines direction and slopes in turn. A positive inertia s holds
    the direction at s times the previous driver's plus 1 − s times that of the preceding entry,
    and fits slopes only.

    Arguments:
        whitened: the coordinates in which the search takes place.
        covector, slopes, is_known: the previous driver, and whether there is one.
        inertia: weights of the previous driver's direction.
    """
    given = _Given(*whitened.express(particles, scores))
    before = _unit(whitened.lower.T @ covector)
    before = jnp.where(is_known, before, _unit(-_precision_slopes(given, *given, 0.0)))

    def refine(i: Array, driver: _Driver) -> _Driver:
        """Alternate between slopes given the direction, and the direction unless it is held."""
        split = _split(given, driver.direction, driver.slopes)
        return jax.lax.cond(
            i % 2 == 0,
            lambda: driver._replace(split=split, slopes=_slopes(split)),
            lambda: driver._replace(
                split=split,
                direction=jnp.where(
                    driver.is_held, driver.direction, _direction(given, split, driver.slopes)
                ),
            ),
        )

    def build(found: Array, share: Array) -> tuple[Array, DriverFrame]:
        is_held = share > 0
        mixed = _unit(share * before + (1 - share) * found)
        nothing = jax.eval_shape(_split, given, mixed, slopes)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), nothing)
        driver = jax.lax.fori_loop(0, 6, refine, _Driver(mixed, slopes, nothing, is_held))
        direction = jnp.where(driver.direction @ before < 0, -driver.direction, driver.direction)
        split = driver.split
        return direction, DriverFrame(
            whitened.centre,
            whitened.lower @ split.rotation,
            split.rotation.T @ whitened.inverse,
            split.unit,
            split.offsets,
            split.tilts,
            driver.slopes,
        )

    return jax.lax.scan(build, before, inertia)[1]


def _direction(given: _Given, split: _Split, slopes: Array) -> Float[Array, " d"]:
    """The direction of steepest descent of the log precision, which depends on t alone."""
    widths = jnp.exp(slopes * bounded_exponent(split.t))
    residuals, scores = split.residuals / widths, split.scores * widths
    metric = _metric(residuals, scores)
    removed = 2 * jnp.mean(slopes) * bounded_exponent(split.t)[:, 0]
    return _unit(-_precision_slopes(given, whiten(metric, residuals), scores @ metric, removed))


def _split(given: _Given, direction: Array, slopes: Array) -> _Split:
    """Split along `direction`; regress the other coordinates on t, from particles and scores."""
    rotation = rotation_onto(direction)
    rotated, scores = given.positions @ rotation, given.scores @ rotation
    t = rotated[:, 0]
    bound = 4 * typical_size(t)
    unit = jnp.std(jnp.clip(t, -bound, bound)) + TINY
    t = t / unit
    rest, others = rotated[:, 1:], scores[:, 1:]
    widths = jnp.exp(slopes * bounded_exponent(t))
    leverage = 1 / (1 + t[:, None] ** 2 / 4)
    # In whitened coordinates the others hardly depend on t, which is good enough for the metric.
    residuals = rest / widths
    metric = _metric(residuals, others * widths)
    # For a normal density, x + Σ∇log p is the mean at every x.
    means = rest + (others * widths) @ (metric @ metric.T) * widths
    floor = 1e-3 * typical_size(residuals)

    def reweigh(_: Array | int, location: tuple[Array, Array]) -> tuple[Array, Array]:
        """Regression of the means on t with standard deviations `widths`, robust to outliers."""
        offsets, tilts = location
        away = (means - offsets - tilts * t[:, None]) / widths
        weights = leverage / widths**2 / (1 + (away / (typical_size(away) + floor)) ** 2 / 4)
        weights = weights / sums(weights)
        mean_t, mean = t @ weights, sums(weights * means)
        centred = t[:, None] - mean_t
        covariance = sums(weights * centred * (means - mean))
        tilts = covariance / (sums(weights * centred**2) + 1e-3)
        return mean - tilts * mean_t, tilts

    none = jnp.zeros_like(rest[0])
    offsets, tilts = jax.lax.fori_loop(0, 3, reweigh, (none, none))
    residuals = rest - offsets - tilts * t[:, None]
    return _Split(rotation, unit, offsets, tilts, t, residuals, scores[:, 0], others)


def _slopes(split: _Split) -> Float[Array, " e"]:
    """Fit aⱼ in τ∂₁log p + Σⱼ cⱼsⱼ ≈ α + κt − Σⱼ aⱼ(rⱼsⱼ + 1), for residuals r and scores s.

    A ridge penalty shrinks all aⱼ towards the mean over j of the slopes of log|rⱼ| on t.
    """
    t = jnp.clip(split.t, -3.0, 3.0)
    t = t - jnp.mean(t)
    logs = jnp.log(jnp.abs(split.residuals / typical_size(split.residuals)) + TINY)
    visible = t @ jnp.maximum(logs, -4.0) / (jnp.sum(t**2) + 0.05 * len(t))
    features = split.residuals * split.scores + 1
    response = split.unit * split.score_along + split.scores @ split.tilts
    columns = jnp.concatenate([jnp.ones_like(t)[:, None], split.t[:, None], -features], axis=1)
    size = jnp.sqrt(1 + 1.1 * jnp.mean(features**2, axis=1))
    zeros = jnp.zeros(2, t.dtype)
    prior = jnp.concatenate([zeros, jnp.full_like(visible, jnp.mean(jnp.clip(visible, -2.5, 2.5)))])
    precision = jnp.concatenate([zeros, jnp.full_like(visible, SLOPE_DEVIATION**-2)])
    solution = _robust_ridge(columns / size[:, None], response / size, prior, precision)
    return jnp.clip(solution[2:], -LARGEST_SLOPE, LARGEST_SLOPE)


def _precision_slopes(
    given: _Given, residuals: Array, scores: Array, removed: Array | float
) -> Float[Array, " d"]:
    """Regression slopes of the log precision, log|score| − log|residual|, on the positions.

    Arguments:
        removed: change of the log precision by an earlier rescaling, which is subtracted.
    """
    precision = jnp.log(_lengths(scores)) - jnp.log(_lengths(residuals)) - removed
    columns = jnp.concatenate([jnp.ones_like(given.positions[:, :1]), given.positions], axis=1)
    zeros = jnp.zeros(columns.shape[1], columns.dtype)
    return _robust_ridge(columns, precision, zeros, zeros)[1:]


def _robust_ridge(columns: Array, response: Array, prior: Array, precision: Array) -> Array:
    """Ridge regression towards `prior`, with Cauchy weights against large residuals."""

    def iterate(_: Array | int, solution: Array) -> Array:
        residuals = response - columns @ solution
        scale = typical_size(residuals) + 1e-6
        weighted = columns / (1 + (residuals / (2 * scale)) ** 2)[:, None]
        matrix = weighted.T @ columns
        ridge = precision * scale**2 + 1e-5 * jnp.diag(matrix) + TINY
        factor = jax.scipy.linalg.cho_factor(matrix + jnp.diag(ridge))
        return prior + jax.scipy.linalg.cho_solve(factor, weighted.T @ (response - columns @ prior))

    return jax.lax.fori_loop(0, 4, iterate, prior)


def _metric(residuals: Float[Array, "n e"], scores: Float[Array, "n e"]) -> Float[Array, "e e"]:
    """W with WWᵀ = A # B⁻¹, where A and B are the second moments of residuals and scores.

    A # B⁻¹ is the geometric mean of the matrices. If scores are −P times residuals, as for a normal
    density, WWᵀ is P⁻¹ exactly, for any number and any distribution of the particles.
    """
    widths, heights = jnp.split(typical_size(jnp.concatenate([residuals, scores], axis=1)), 2)
    residuals, scores = residuals / widths, scores / heights
    squares = jnp.mean(residuals**2, axis=1) + jnp.mean(scores**2, axis=1)
    weights = 1 / (1 + squares / 2)
    weights = weights / jnp.sum(weights)

    def moments(values: Array) -> Array:
        values = values - weights @ values
        matrix = (weights[:, None] * values).T @ values
        return matrix + 1e-4 * jnp.diag(jnp.diag(matrix) + TINY)

    lower = jnp.linalg.cholesky(moments(residuals)) * widths[:, None]
    turned = lower * heights[:, None]
    eigenvalues, vectors = jnp.linalg.eigh(turned.T @ moments(scores) @ turned)
    eigenvalues = jnp.maximum(eigenvalues, 1e-6 * eigenvalues[-1] + TINY)
    mean = lower @ (vectors / jnp.sqrt(eigenvalues)) @ vectors.T @ lower.T
    return jnp.linalg.cholesky(mean + 1e-6 * jnp.diag(jnp.diag(mean)))


def rotation_onto(direction: Float[Array, " d"]) -> Float[Array, "d d"]:
    """Orthogonal matrix with `direction` as its first column.

    If `direction` is near a coordinate axis, the matrix hardly mixes the other coordinates.
    """
    sign = jnp.where(direction[0] > 0, -1.0, 1.0)
    normal = _unit(direction.at[0].add(-sign))
    reflection = jnp.eye(len(direction), dtype=direction.dtype) - 2 * jnp.outer(normal, normal)
    return reflection.at[:, 0].multiply(sign)


def _lengths(vectors: Float[Array, "n d"]) -> Float[Array, " n"]:
    return jnp.linalg.norm(vectors, axis=1) + TINY


def _unit(vector: Float[Array, " d"]) -> Float[Array, " d"]:
    return vector / (jnp.linalg.norm(vector) + TINY)
