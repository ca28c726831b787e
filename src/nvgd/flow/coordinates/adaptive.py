"""Adaptive coordinates: whitened, and unwarped where the target is a funnel."""

from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from nvgd._support.errors import check_count, plain
from nvgd._support.particle_groups import even_selection
from nvgd._support.robust import (
    can_fit_scatter,
    coordinate_scales,
    quick_coordinate_scales,
    student_scatter,
    typical_size,
)
from nvgd._support.trees import all_finite
from nvgd.flow.coordinates.base import (
    AbstractCoordinates,
    AbstractFrame,
    AffineFrame,
    ComposedFrame,
    DiagonalFrame,
)
from nvgd.flow.coordinates.driver_frame import DriverFrame
from nvgd.flow.coordinates.driver_search import find_driver

# Whitened coordinates replace a driver only if their misfit is lower by more than this margin.
MARGIN = 0.03
# Drivers are searched for in each of the first NUM_FIRST steps, and every EARLY_EVERY steps before
# step EARLY.
NUM_FIRST, EARLY, EARLY_EVERY = 5, 100, 10
# Fixed-point iterations of the Student-t fit, in the driver's coordinates and in x.
FINE, COARSE = 3, 4


class AdaptiveState(NamedTuple):
    """The frame in use, and the driver direction from which the next search starts."""

    frame: DriverFrame
    covector: Float[Array, " d"]
    is_known: Bool[Array, ""]


class NoSearch(NamedTuple):
    """State for noisy scores, which do not allow a search for a driver."""


class Adaptive(AbstractCoordinates[AdaptiveState | NoSearch | None]):
    """Coordinates learned from particles and scores, in which the particles have unit spread.

    The particles are whitened by a robust scatter (a Student-t fit, which is insensitive to stray
    particles). In addition, the scores are searched for a driver, the direction along which the
    target is a funnel (`driver_search`). A driver is used if the scores are closer to those of a
    standard normal in its coordinates than in whitened ones. The misfit is the mean of
    log(1 + |∇log p(u) + u|²/d) over the particles.

    With fewer than 1.25 particles per dimension the scatter cannot be estimated. Each coordinate is
    then scaled by a robust centre and standard deviation, without a driver. With minibatches no
    driver is searched for, because noise would determine the result. Among more than 2,048
    particles, the search uses an evenly spaced selection.

    Arguments:
        search_every: number of steps between two searches for a driver, after the first hundred.

    Examples:
        >>> flow = nvgd.NVGD(coordinates=nvgd.coordinates.Adaptive(search_every=50))
    """

    search_every: int = eqx.field(default=20, converter=plain)

    frame_kind: ClassVar[Literal["fixed", "affine", "general"]] = "general"

    def __check_init__(self):
        check_count("search_every", self.search_every)

    def init(self, particles, *, is_noisy=False):
        """State without a driver."""
        num_particles, dim = particles.shape
        if dim == 1 or not (is_noisy or can_fit_scatter(num_particles, dim)):
            return None
        if is_noisy:
            return NoSearch()
        zeros = jnp.zeros(dim, particles.dtype)
        identity = jnp.eye(dim, dtype=particles.dtype)
        frame = DriverFrame.without_driver(AffineFrame(zeros, identity, identity))
        return AdaptiveState(frame, zeros, jnp.array(False))

    def is_due(self, state, step):
        """Every `search_every` steps; more often at first, while the particles move fast."""
        if not isinstance(state, AdaptiveState):
            return False
        is_early = (step < EARLY) & (step % EARLY_EVERY == 0)
        return (step < NUM_FIRST) | is_early | (step % self.search_every == 0)

    def search(self, particles, scores, state):
        """Search for a driver."""
        if not isinstance(state, AdaptiveState):
            return state
        return _search(even_selection(particles), even_selection(scores), state)

    def fit(self, particles, scores, state):
        """Fit the scatter, in the coordinates of the driver in use."""
        if state is None:
            return DiagonalFrame(*coordinate_scales(particles))
        if isinstance(state, NoSearch):
            if not can_fit_scatter(*particles.shape):
                return DiagonalFrame(*quick_coordinate_scales(particles))
            return AffineFrame.of(*student_scatter(particles, COARSE))
        expressed, _ = state.frame.express(particles, scores)
        return ComposedFrame(state.frame, AffineFrame.of(*student_scatter(expressed, FINE)))


def _search(
    particles: Float[Array, "n d"], scores: Float[Array, "n d"], state: AdaptiveState
) -> AdaptiveState:
    """Choose the frame with the lowest misfit.

    The candidates are no driver, the driver in use, a newly found driver, and a driver whose
    direction lies between the previous and the newly found one.
    """
    whitened = AffineFrame.of(*student_scatter(particles, COARSE))
    old, _ = state.frame.express(particles, scores)
    # Slopes are per standard deviation of t, which changes as the particles move.
    slopes = jnp.clip(state.frame.slopes * typical_size(old[:, 0] - jnp.mean(old[:, 0])), -3.0, 3.0)
    inertia = jnp.array([0.0, 0.8], particles.dtype)
    found = find_driver(
        particles, scores, whitened, state.covector, slopes, state.is_known, inertia
    )
    none = DriverFrame.without_driver(whitened)
    candidates = jax.tree.map(
        lambda a, b, c: jnp.concatenate([a[None], b[None], c]), none, state.frame, found
    )
    misfits = jax.lax.map(lambda frame: misfit(frame, particles, scores), candidates)
    best = jnp.argmin(misfits.at[0].add(MARGIN))
    frame = jax.tree.map(lambda leaf: leaf[best], candidates)
    newest = jax.tree.map(lambda leaf: leaf[2], candidates)
    # If no driver is used, the next search starts from the newly found direction.
    covector = jnp.where(best == 0, newest.covector, frame.covector)
    is_usable = jnp.all(jnp.isfinite(covector))
    return AdaptiveState(frame, jnp.where(is_usable, covector, 0.0), is_usable)


def misfit(
    frame: AbstractFrame, particles: Float[Array, "n d"], scores: Float[Array, "n d"]
) -> Float[Array, ""]:
    """Distance of the scores from those of a standard normal, in the frame's coordinates."""
    expressed, expressed_scores = frame.express(particles, scores)
    inner = AffineFrame.of(*student_scatter(expressed, 2))
    positions, inner_scores = inner.express(expressed, expressed_scores)
    excess = jnp.mean((jnp.clip(positions, -4.0, 4.0) + inner_scores) ** 2, axis=1)
    value = jnp.mean(jnp.log1p(excess))
    return jnp.where(all_finite(frame) & jnp.isfinite(value), value, jnp.inf)
