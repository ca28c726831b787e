"""Coordinates that fit themselves to the target: whitened, and unwarped where it is a funnel."""

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
    median,
    scale_about_zero,
    student_scatter,
    whiten,
)
from nvgd._support.trees import all_finite
from nvgd.flow.coordinates.base import (
    AbstractCoordinates,
    AbstractFrame,
    AffineFrame,
    DiagonalFrame,
)
from nvgd.flow.coordinates.driver_frame import DriverFrame
from nvgd.flow.coordinates.driver_search import find_driver

# How much better than a driver, in the mean log of the misfit, no driver must be to be used.
MARGIN = 0.03
# Fixed-point steps of the scatter of particles in the driver's coordinates, and in x.
FINE, COARSE = 3, 4


class AdaptiveState(NamedTuple):
    """The frame in use, and the driver found last, whether or not it is in use."""

    frame: DriverFrame
    covector: Float[Array, " d"]
    is_known: Bool[Array, ""]


class NoSearch(NamedTuple):
    """The state where scores are too noisy to tell a driver from."""


class _ComposedFrame(AbstractFrame):
    outer: DriverFrame
    inner: AffineFrame

    def express(self, particles, scores):
        return self.inner.express(*self.outer.express(particles, scores))

    def restore(self, expressed):
        return self.outer.restore(self.inner.restore(expressed))

    def log_volumes(self, expressed):
        return self.outer.log_volumes(self.inner.restore(expressed))


class Adaptive(AbstractCoordinates[AdaptiveState | NoSearch | None]):
    """Coordinates learned from particles and scores; the step is in units of their own spread.

    Whitened by a robust scatter of the particles (a Student-t fit, which stray particles do not
    spoil). Every few steps the scores are searched for a driver (`driver_search`); it
    is used if the target, as its scores tell, is more nearly normal in its coordinates than in
    whitened ones: the misfit is the mean of log(1 + |∇log p(u) + u|²/d) over the particles.

    With fewer than 1.25 particles per dimension a scatter cannot be estimated: medians and robust
    standard deviations of the coordinates are used then, and no driver. Nor is one looked for where
    scores come from minibatches: their noise would decide. Of more than 2,048 particles an even
    selection is searched.

    Arguments:
        search_every: steps between two searches for a driver.
    """

    search_every: int = eqx.field(default=5, converter=plain)

    frame_kind: ClassVar[Literal["fixed", "affine", "general"]] = "general"

    def __check_init__(self):
        check_count("search_every", self.search_every)

    def init(self, particles, *, is_noisy=False):
        """No driver yet; with noisy scores none is searched for."""
        num_particles, dim = particles.shape
        if dim == 1 or not can_fit_scatter(num_particles, dim):
            return None
        if is_noisy:
            return NoSearch()
        zeros = jnp.zeros(dim, particles.dtype)
        frame = DriverFrame.affine(zeros, jnp.eye(dim, dtype=particles.dtype))
        return AdaptiveState(frame, zeros, jnp.array(False))

    def fit(self, particles, scores, state, *, step):
        """The driver if it is its turn, then the scatter."""
        if state is None:
            return DiagonalFrame(*coordinate_scales(particles)), None
        if isinstance(state, NoSearch):
            return AffineFrame(*student_scatter(particles, COARSE)), state
        # Every step at first: the particles move fast then.
        is_due = (step % self.search_every == 0) | (step < self.search_every)
        shown = even_selection(particles), even_selection(scores)
        state = jax.lax.cond(
            is_due, lambda state: _search(*shown, state), lambda state: state, state
        )
        return self.settled(particles, scores, state), state

    def settled(self, particles, scores, state):
        """The scatter, in the coordinates of the driver in use."""
        if not isinstance(state, AdaptiveState):
            return super().settled(particles, scores, state)
        expressed, _ = state.frame.express(particles, scores)
        return _ComposedFrame(state.frame, AffineFrame(*student_scatter(expressed, FINE)))


def _search(
    particles: Float[Array, "n d"], scores: Float[Array, "n d"], state: AdaptiveState
) -> AdaptiveState:
    """The best of: no driver, the one in use, the one the scores show now, and one in between."""
    centre, lower = student_scatter(particles, COARSE)
    old, _ = state.frame.express(particles, scores)
    # Slopes are per standard deviation of t, which grows or shrinks with the particles.
    slopes = jnp.clip(
        state.frame.slopes * scale_about_zero(old[:, 0] - median(old[:, 0])), -3.0, 3.0
    )
    inertia = jnp.array([0.0, 0.8], particles.dtype)
    found = find_driver(
        particles, scores, centre, lower, state.covector, slopes, state.is_known, inertia
    )
    none = DriverFrame.affine(centre, lower)
    candidates = jax.tree.map(
        lambda a, b, c: jnp.concatenate([a[None], b[None], c]), none, state.frame, found
    )
    misfits = jax.lax.map(lambda frame: _misfit(frame, particles, scores), candidates)
    best = jnp.argmin(misfits.at[0].add(MARGIN))
    frame = jax.tree.map(lambda leaf: leaf[best], candidates)
    newest = jax.tree.map(lambda leaf: leaf[2], candidates)
    # The newest direction is remembered even if no driver is used: the search goes on from it.
    covector = jnp.where(best == 0, newest.covector, frame.covector)
    is_usable = jnp.all(jnp.isfinite(covector))
    return AdaptiveState(frame, jnp.where(is_usable, covector, 0.0), is_usable)


def _misfit(
    frame: DriverFrame, particles: Float[Array, "n d"], scores: Float[Array, "n d"]
) -> Float[Array, ""]:
    """How far the target's scores are from a standard normal's in the frame's coordinates."""
    expressed, expressed_scores = frame.express(particles, scores)
    centre, lower = student_scatter(expressed, 2)
    positions = jnp.clip(whiten(lower, expressed - centre), -4.0, 4.0)
    excess = jnp.mean((positions + expressed_scores @ lower) ** 2, axis=1)
    value = jnp.mean(jnp.log1p(excess))
    return jnp.where(all_finite(frame) & jnp.isfinite(value), value, jnp.inf)
