"""Coordinates for hierarchical models, in which few coordinates set the precision of others.

Let t₁, t₂, … be some coordinates, such as logs of scales, and w the others. If data and prior are
normal given t, the scores are linear in w,

    ∇log p(w | t) = −Σᵢ eᵏⁱᵗⁱ (Aᵢw − aᵢ) − (Bw − b),

with known kᵢ: −2 for effects of variance τ² in centred form; 2 if the effects are divided by τ; ±1
if t is the log of a variance or precision. A regression of the scores on (eᵏⁱᵗⁱw, eᵏⁱᵗⁱ) and (w, 1)
gives Aᵢ, B, aᵢ and b without noise, at particles of any distribution. A basis V in which all
matrices are diagonal, with VᵀAᵢV = Dᵢ and Vᵀ(ΣAᵢ + B)V = I, makes the density normal:

    w = V y,   y = (Σᵢ eᵏⁱᵗⁱVᵀaᵢ + Vᵀb)/π + z/√π,   π = 1 + Σᵢ (eᵏⁱᵗⁱ − 1) Dᵢ.

So correlations, scales and means are those that the model has at every t, however far from the
particles: a correlation of the bulk vanishes in the neck of a funnel, and the width of the neck
becomes proportional to τ. For one t there is always such a basis; for more, the one that comes
closest is taken. Where this, or a likelihood that is not normal, makes the result an approximation,
it is used if scores are closer to a normal density's in it.
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

# Values of k, and the largest number of t.
RATES = (-2.0, -1.0, 1.0, 2.0)
MOST_SCALES = 2
# The precisions are constant where |kt| exceeds this number.
REACH = 16.0
# Ridge penalty, relative to the mean square of each feature, and rows per dimension.
RIDGE, ROWS_PER_DIMENSION = 1e-6, 40
# There is no search in more dimensions: it takes four seconds in 160, and grows as d³.
MOST_DIMENSIONS = 200
# Shares D of the precision below SMALL are zero. Eigenvalues of A + B, in units of the particles'
# spread, are at least LEAST.
SMALL, LEAST = 0.02, 0.05
# The other share 1 − D is at least this number.
LEAST_REST = 1e-3
# These coordinates replace others, and use another t, only if their misfit is lower by this margin.
MARGIN = 0.03
NUM_REWEIGHTINGS = 4
# Combinations of the matrices whose eigenvectors are tried as their common basis.
NUM_COMBINATIONS = 16
TINY = 1e-12

Matrix = NDArray[np.floating]
# Arrays of NumPy or JAX.
Numbers = Any


class HierarchyFrame(AbstractFrame):
    """x = μ + M (t, y), with y as in the module docstring.

    Arguments:
        centre, basis, inverse: μ, M and M⁻¹.
        rates: k.
        shares: D.
        pulls: Vᵀa and, in the last row, Vᵀb.
    """

    centre: Float[Numbers, " d"]
    basis: Float[Numbers, "d d"]
    inverse: Float[Numbers, "d d"]
    rates: Float[Numbers, " m"]
    shares: Float[Numbers, "m e"]
    pulls: Float[Numbers, "m+1 e"]

    def express(self, particles, scores):
        """(t, z), and the score of their density."""
        return self.express_with(jnp, particles, scores)

    def express_with(self, xp: Any, particles: Any, scores: Any) -> tuple[Any, Any]:
        """`express` with NumPy or JAX, the module `xp`."""
        num = len(self.rates)
        turned, turned_scores = (particles - self.centre) @ self.inverse.T, scores @ self.basis
        t, others = turned[:, :num], turned_scores[:, num:]
        growth, precisions, means = self._given(xp, t)
        z, scores_z = (turned[:, num:] - means) * precisions**0.5, others / precisions**0.5
        # Derivatives of the means and the log scales by t, and that of the log determinant.
        by_mean = others / precisions
        by_scale = -by_mean * means - 0.5 * (scores_z * z + 1) / precisions
        slopes = self.rates * growth * (abs(self.rates * t) < REACH)
        along = slopes * (by_mean @ self.pulls[:-1].T + by_scale @ self.shares.T)
        return (
            xp.concatenate([t, z], axis=1),
            xp.concatenate([turned_scores[:, :num] + along, scores_z], axis=1),
        )

    def restore(self, expressed):
        """x from (t, z)."""
        t, z = expressed[:, : len(self.rates)], expressed[:, len(self.rates) :]
        _, precisions, means = self._given(jnp, t)
        y = means + z / precisions**0.5
        return self.centre + jnp.concatenate([t, y], axis=1) @ self.basis.T

    def log_volumes(self, expressed):
        """−½ Σ log π."""
        _, precisions, _ = self._given(jnp, expressed[:, : len(self.rates)])
        return -0.5 * jnp.sum(jnp.log(precisions), axis=1)

    def _given(self, xp: Any, t: Any) -> tuple[Any, Any, Any]:
        """eᵏᵗ, precisions and means."""
        growth = xp.exp(xp.clip(self.rates * t, -REACH, REACH))
        precisions = growth @ self.shares + 1 - self.shares.sum(axis=0)
        return growth, precisions, (growth @ self.pulls[:-1] + self.pulls[-1]) / precisions


class Hierarchical(AbstractCoordinates[HierarchyFrame]):
    """A `HierarchyFrame`, the state of these coordinates, in which particles are whitened."""

    frame_kind: ClassVar[Literal["fixed", "affine", "general"]] = "general"

    def init(self, particles, *, is_noisy=False):
        """Without a hierarchy."""
        del is_noisy
        dim, dtype = particles.shape[1], particles.dtype
        zeros, eye = jnp.zeros(dim, dtype), jnp.eye(dim, dtype=dtype)
        pulls = jnp.zeros((2, dim - 1), dtype)
        return HierarchyFrame(zeros, eye, eye, zeros[:1], pulls[:1], pulls)

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
    try:
        found = _fitted((x - centre) / unit, s * unit, unit, limit)
    except np.linalg.LinAlgError:
        return None
    if found is None:
        return None
    # From the standardised coordinates to the original ones.
    frame = HierarchyFrame(
        centre,
        unit[:, None] * found.basis,
        found.inverse / unit,
        found.rates,
        found.shares,
        found.pulls,
    )
    return jax.tree.map(lambda leaf: np.asarray(leaf, positions.dtype), frame)


def _fitted(x: Matrix, s: Matrix, unit: Matrix, limit: float) -> HierarchyFrame | None:
    """The frame with as many t as lower the misfit on held-out rows."""
    scales: list[tuple[int, float]] = []
    found = None
    # Two may be below the limit where each alone is not.
    for _ in range(MOST_SCALES):
        scales = [*scales, (_axis(x, s, [axis for axis, _ in scales]), 0.0)]
        misfit = np.inf
        # A new t can change the best k of the previous one.
        for index in reversed(range(len(scales))):
            axis, _ = scales[index]
            tried = [
                [*scales[:index], (axis, rate * unit[axis]), *scales[index + 1 :]] for rate in RATES
            ]
            misfits = [_misfit(_fit(each, x[::2], s[::2]), x[1::2], s[1::2]) for each in tried]
            best = int(np.argmin(misfits))
            scales, misfit = tried[best], misfits[best]
        if misfit < limit:
            found, limit = scales, misfit - MARGIN
    return _fit(found, x, s) if found else None


def normal_misfit(expressed: Matrix, scores: Matrix) -> float:
    """Distance of scores from those of a standard normal: mean of log(1 + |u + ∇log p|²/d)."""
    excess = np.mean((np.clip(expressed, -4.0, 4.0) + scores) ** 2, axis=1)
    return float(np.mean(np.log1p(excess)))


def _axis(x: Matrix, s: Matrix, known: list[int]) -> int:
    """The coordinate with which the sizes of the scores correlate most, given those that are known.

    Only scores of other coordinates count.
    """
    positions, logs = np.clip(x, -3.0, 3.0), np.log(np.abs(s) + TINY)
    logs = np.maximum(logs, np.median(logs, axis=0) - 3.0)
    given = positions[:, known]
    given = np.concatenate([np.ones((len(x), 1)), given, given**2], axis=1)
    logs = logs - given @ np.linalg.lstsq(given, logs)[0]
    positions, logs = (
        (values - values.mean(axis=0)) / (values.std(axis=0) + TINY) for values in (positions, logs)
    )
    correlations = positions.T @ logs / len(x)
    np.fill_diagonal(correlations, 0.0)
    correlations[known] = 0.0
    return int(np.argmax(np.sum(correlations**2, axis=1)))


def _fit(scales: list[tuple[int, float]], x: Matrix, s: Matrix) -> HierarchyFrame:
    """The frame for some t, as their coordinates and k."""
    axes, rates = [axis for axis, _ in scales], np.array([rate for _, rate in scales])
    num, others = len(axes), np.delete(np.arange(x.shape[1]), axes)
    t, w, scores = x[:, axes], x[:, others], s[:, others]
    dim = len(others)
    growth = np.exp(np.clip(rates * t, -REACH, REACH))
    rows = np.concatenate([w, np.ones((len(w), 1))], axis=1)
    features = np.concatenate([*(factor[:, None] * rows for factor in growth.T), rows], axis=1)
    total = 1 + growth.sum(axis=1, keepdims=True)
    fit = np.zeros((features.shape[1], dim))
    for _ in range(NUM_REWEIGHTINGS):
        # Errors grow with the precision, and rows that are far off hardly count.
        residuals = scores - features @ fit
        errors = residuals**2 / total
        errors = np.mean(errors / (np.median(errors, axis=0) + TINY), axis=1, keepdims=True)
        weighted = features / (total * (1 + errors / np.median(errors)))
        gram = weighted.T @ features
        gram += np.diag(RIDGE * np.diag(gram) + TINY)
        fit += np.linalg.solve(gram, weighted.T @ residuals)
    parts = fit.reshape(num + 1, dim + 1, dim)
    pulls, matrices = parts[:, -1], -(parts[:, :-1] + parts[:, :-1].swapaxes(1, 2)) / 2
    values, vectors = np.linalg.eigh(matrices.sum(axis=0))
    white = vectors / np.sqrt(np.maximum(values, LEAST))
    turn, shares = _common_basis(white.T @ matrices[:-1] @ white)
    shares = np.where(shares < SMALL, 0.0, shares)
    shares *= np.minimum(1.0, (1 - LEAST_REST) / np.maximum(shares.sum(axis=0), TINY))
    local = white @ turn
    pulls = pulls @ local
    pulls[:-1] *= shares > 0
    basis, inverse = np.zeros((2, dim + num, dim + num))
    basis[axes, range(num)] = inverse[range(num), axes] = 1.0
    basis[others, num:], inverse[num:, others] = local, np.linalg.inv(local)
    return HierarchyFrame(np.zeros(dim + num), basis, inverse, rates, shares, pulls)


def _common_basis(matrices: NDArray[np.floating]) -> tuple[Matrix, Matrix]:
    """A rotation in which symmetric matrices are nearly diagonal, and their diagonals.

    Matrices with a common basis have it in common with almost all of their combinations; of a few
    random ones, the one that leaves the smallest off-diagonal entries is used.
    """
    rng = np.random.default_rng(0)
    best, found = -np.inf, None
    for weights in rng.normal(size=(NUM_COMBINATIONS if len(matrices) > 1 else 1, len(matrices))):
        _, turn = np.linalg.eigh(np.tensordot(weights, matrices, 1))
        diagonals = np.einsum("ij,mik,kj->mj", turn, matrices, turn, optimize=True)
        if np.sum(diagonals**2) > best:
            best, found = np.sum(diagonals**2), (turn, diagonals)
    assert found is not None
    return found


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
