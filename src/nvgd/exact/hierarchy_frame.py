"""Coordinates for hierarchical models, in which one coordinate sets the precision of others.

Let t be one coordinate, such as the log of a scale τ, and w the others. If data and prior are
normal given t, the scores are linear in w,

    ∇log p(w | t) = −eᵏᵗ (Aw − a) − (Bw − b),

with a k that is known: −2 for effects of variance τ² in centred form; 2 if the effects are divided
by τ; ±1 if t is the log of a variance or precision. A regression of the scores on (eᵏᵗw, eᵏᵗ, w, 1)
tells A, B, a and b without noise, at particles of any distribution. A basis V in which both
matrices are diagonal, with VᵀAV = D and Vᵀ(A + B)V = I, makes the density normal:

    w = V y,   y = (eᵏᵗVᵀa + Vᵀb)/π + z/√π,   π = eᵏᵗD + I − D.

So correlations, scales and means are those that the model has at every t, however far from the
particles: a correlation of the bulk vanishes in the neck of a funnel, and the width of the neck
becomes proportional to τ. Where likelihoods are not normal, this is an approximation, which is used
if scores are closer to a normal density's in it.
"""

from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from nvgd._support.blas_threads import on_one_thread
from nvgd._support.robust import can_fit_scatter, student_scatter
from nvgd.flow.coordinates.base import (
    AbstractCoordinates,
    AbstractFrame,
    AffineFrame,
    ComposedFrame,
)

# Values of k.
RATES = (-2.0, -1.0, 1.0, 2.0)
# The precisions are constant where |kt| exceeds this number.
REACH = 16.0
# Ridge penalty, relative to the mean square of each feature, and rows per dimension.
RIDGE, ROWS_PER_DIMENSION = 1e-6, 40
# No hierarchy is looked for in more dimensions: that would take seconds.
MOST_DIMENSIONS = 128
# Shares D of the precision below SMALL are zero. Eigenvalues of A + B, in units of the particles'
# spread, are at least LEAST.
SMALL, LEAST = 0.02, 0.05
# The other share 1 − D is at least this number.
LEAST_REST = 1e-3
# These coordinates replace others only if their misfit is lower by this margin.
MARGIN = 0.03
NUM_REWEIGHTINGS = 4
TINY = 1e-12

Matrix = NDArray[np.floating]
# Arrays of NumPy or JAX.
Numbers = Any


class HierarchyFrame(AbstractFrame):
    """x = μ + M (t, y), with y as in the module docstring.

    Arguments:
        centre, basis, inverse: μ, M and M⁻¹.
        rate: k.
        shares: D.
        pulls: Vᵀa and Vᵀb.
    """

    centre: Float[Numbers, " d"]
    basis: Float[Numbers, "d d"]
    inverse: Float[Numbers, "d d"]
    rate: Float[Numbers, ""]
    shares: Float[Numbers, " e"]
    pulls: Float[Numbers, "2 e"]

    def express(self, particles, scores):
        """(t, z), and the score of their density."""
        return self.express_with(jnp, particles, scores)

    def express_with(self, xp: Any, particles: Any, scores: Any) -> tuple[Any, Any]:
        """`express` with NumPy or JAX, the module `xp`."""
        turned, turned_scores = (particles - self.centre) @ self.inverse.T, scores @ self.basis
        t, others = turned[:, 0], turned_scores[:, 1:]
        growth, precisions, means = self._given(xp, t)
        z, scores_z = (turned[:, 1:] - means) * precisions**0.5, others / precisions**0.5
        # Derivatives of the means and the log scales by t, and that of the log determinant.
        slopes = self.rate * growth * (abs(self.rate * t) < REACH)[:, None] / precisions
        by_mean = others * (self.pulls[0] - means * self.shares)
        by_scale = -0.5 * (scores_z * z + 1) * self.shares
        along = turned_scores[:, 0] + xp.sum(slopes * (by_mean + by_scale), axis=1)
        return (
            xp.concatenate([t[:, None], z], axis=1),
            xp.concatenate([along[:, None], scores_z], axis=1),
        )

    def restore(self, expressed):
        """x from (t, z)."""
        _, precisions, means = self._given(jnp, expressed[:, 0])
        y = means + expressed[:, 1:] / precisions**0.5
        return self.centre + jnp.concatenate([expressed[:, :1], y], axis=1) @ self.basis.T

    def log_volumes(self, expressed):
        """−½ Σ log π."""
        return -0.5 * jnp.sum(jnp.log(self._given(jnp, expressed[:, 0])[1]), axis=1)

    def _given(self, xp: Any, t: Any) -> tuple[Any, Any, Any]:
        """eᵏᵗ, precisions and means."""
        growth = xp.exp(xp.clip(self.rate * t, -REACH, REACH))[:, None]
        precisions = growth * self.shares + 1 - self.shares
        return growth, precisions, (growth * self.pulls[0] + self.pulls[1]) / precisions


class Hierarchical(AbstractCoordinates[HierarchyFrame]):
    """A `HierarchyFrame`, the state of these coordinates, in which particles are whitened."""

    frame_kind: ClassVar[Literal["fixed", "affine", "general"]] = "general"

    def init(self, particles, *, is_noisy=False):
        """Without a hierarchy."""
        del is_noisy
        dim, dtype = particles.shape[1], particles.dtype
        zeros, eye = jnp.zeros(dim, dtype), jnp.eye(dim, dtype=dtype)
        pulls = jnp.zeros((2, dim - 1), dtype)
        return HierarchyFrame(zeros, eye, eye, zeros[0], zeros[1:], pulls)

    def fit(self, particles, scores, state):
        """Fit the scatter."""
        expressed, _ = state.express(particles, scores)
        return ComposedFrame(state, AffineFrame.of(*student_scatter(expressed, 3)))


@on_one_thread
def find_hierarchy(
    positions: Float[np.ndarray, "n k d"], scores: Float[np.ndarray, "n k d"], limit: float
) -> HierarchyFrame | None:
    """The frame of a hierarchy, fitted to chains, if its misfit is below `limit`.

    The misfit is that of a fit to half of the chains, at the others. NumPy, without compilation.
    """
    num, length, dim = positions.shape
    wanted = -(-ROWS_PER_DIMENSION * dim // num)
    if not 3 <= dim <= MOST_DIMENSIONS or wanted > length or not can_fit_scatter(num, dim):
        return None
    times = np.linspace(0, length - 1, wanted).astype(int) if wanted > 1 else [length - 1]
    # Rows of the same chain are all even or all odd.
    num -= num % 2
    x, s = (
        np.moveaxis(values[:num, times], 1, 0).reshape(-1, dim).astype(np.float64)
        for values in (positions, scores)
    )
    if not (np.isfinite(x).all() and np.isfinite(s).all()):
        return None
    lower, centre, upper = np.quantile(x, (0.25, 0.5, 0.75), axis=0)
    unit = np.where(upper > lower, (upper - lower) / 1.349, 1.0)
    standard, s_standard = (x - centre) / unit, s * unit
    axis = _axis(standard, s_standard)
    order = np.r_[axis, np.delete(np.arange(dim), axis)]
    standard, s_standard = standard[:, order], s_standard[:, order]
    rates = [rate * unit[axis] for rate in RATES]
    try:
        misfits = [
            _misfit(_fit(rate, standard[::2], s_standard[::2]), standard[1::2], s_standard[1::2])
            for rate in rates
        ]
        best = int(np.argmin(misfits))
        if not misfits[best] < limit:
            return None
        found = _fit(rates[best], standard, s_standard)
    except np.linalg.LinAlgError:
        return None
    # From the standardised coordinates in this order to the original ones.
    mixed, back = np.zeros_like(found.basis), np.zeros_like(found.basis)
    mixed[order], back[:, order] = found.basis, found.inverse
    frame = HierarchyFrame(
        centre, unit[:, None] * mixed, back / unit, found.rate, found.shares, found.pulls
    )
    return jax.tree.map(lambda leaf: np.asarray(leaf, positions.dtype), frame)


def normal_misfit(expressed: Matrix, scores: Matrix) -> float:
    """Distance of scores from those of a standard normal: mean of log(1 + |u + ∇log p|²/d)."""
    excess = np.mean((np.clip(expressed, -4.0, 4.0) + scores) ** 2, axis=1)
    return float(np.mean(np.log1p(excess)))


def _axis(x: Matrix, s: Matrix) -> int:
    """The coordinate with which the sizes of the other scores correlate most."""
    positions, logs = np.clip(x, -3.0, 3.0), np.log(np.abs(s) + TINY)
    logs = np.maximum(logs, np.median(logs, axis=0) - 3.0)
    positions, logs = (
        (values - values.mean(axis=0)) / (values.std(axis=0) + TINY) for values in (positions, logs)
    )
    correlations = positions.T @ logs / len(x)
    np.fill_diagonal(correlations, 0.0)
    return int(np.argmax(np.sum(correlations**2, axis=1)))


def _fit(rate: float, x: Matrix, s: Matrix) -> HierarchyFrame:
    """The frame for a given k, where t is the first coordinate."""
    t, w, scores = x[:, 0], x[:, 1:], s[:, 1:]
    dim = w.shape[1]
    growth = np.exp(np.clip(rate * t, -REACH, REACH))[:, None]
    rows = np.concatenate([w, np.ones_like(t)[:, None]], axis=1)
    features = np.concatenate([growth * rows, rows], axis=1)
    fit = np.zeros((features.shape[1], dim))
    for _ in range(NUM_REWEIGHTINGS):
        # Errors grow with the precision, and rows that are far off hardly count.
        residuals = scores - features @ fit
        errors = residuals**2 / (1 + growth)
        errors = np.mean(errors / (np.median(errors, axis=0) + TINY), axis=1, keepdims=True)
        weighted = features / ((1 + growth) * (1 + errors / np.median(errors)))
        gram = weighted.T @ features
        gram += np.diag(RIDGE * np.diag(gram) + TINY)
        fit += np.linalg.solve(gram, weighted.T @ residuals)
    (*changing, pull), (*constant, constant_pull) = fit.reshape(2, dim + 1, dim)
    changing, constant = (-(np.array(half) + np.array(half).T) / 2 for half in (changing, constant))
    values, vectors = np.linalg.eigh(changing + constant)
    white = vectors / np.sqrt(np.maximum(values, LEAST))
    shares, turn = np.linalg.eigh(white.T @ changing @ white)
    shares = np.where(shares < SMALL, 0.0, np.minimum(shares, 1 - LEAST_REST))
    local = white @ turn
    basis, inverse = np.eye(dim + 1), np.eye(dim + 1)
    basis[1:, 1:], inverse[1:, 1:] = local, np.linalg.inv(local)
    pulls = np.stack([np.where(shares > 0, pull @ local, 0.0), constant_pull @ local])
    return HierarchyFrame(np.zeros(dim + 1), basis, inverse, np.asarray(rate), shares, pulls)


def _misfit(frame: HierarchyFrame, x: Matrix, s: Matrix) -> float:
    """The misfit in this frame, whitened."""
    expressed, scores = frame.express_with(np, x, s)
    centre, weights = np.median(expressed, axis=0), np.ones(len(x))
    white, lower = expressed, np.eye(x.shape[1])
    # A Student-t fit, since a few rows may be far off.
    for _ in range(NUM_REWEIGHTINGS):
        away = expressed - centre
        lower = np.linalg.cholesky((away.T * weights) @ away / np.sum(weights))
        white = np.linalg.solve(lower, away.T).T
        weights = 1 / (1 + np.mean(white**2, axis=1))
    return normal_misfit(white, scores @ lower)
