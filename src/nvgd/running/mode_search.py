"""A search for separate modes, and for those without particles, before the first corrections.

Climbs from the particles and from starts of several widths end at peaks. Peaks with a barrier
between them are separate modes. A mode that no particle climbs to gets particles if a normal
approximation gives it a share of the mass. The number is not important: the corrections shift
particles between the modes, which gives them their weights.

In many dimensions, a wide mode close to a narrow one has no peak of its own: its mass lies on a
shell, inside of which the narrow one is higher everywhere. All climbs lead to the narrow one then,
but the particles are not around its peak. A normal density is fitted to their scores.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from nvgd.exact.modes import Modes
from nvgd.targets.climbs import climb_all, has_barrier, points_between
from nvgd.targets.evaluation import evaluate
from nvgd.targets.scores import Scores
from nvgd.targets.target import Target

# In more dimensions, climbs of this length do not reach a peak.
MOST_DIMENSIONS = 100
FEWEST_PARTICLES = 32
# Climbs are taken in two batches. In the first, one of four starts at a particle. The others start
# where the run did, with widths that are multiplied by these factors; narrow modes are found from
# within, far ones from outside.
PARTICLES_EVERY = 4
WIDTHS = (0.1, 0.3, 1.0, 3.0), (0.4, 0.5, 0.6, 0.7)
# Most evaluations of each batch.
MOST_EVALUATIONS = 40, 20
# Most modes that are told apart.
MOST_MODES = 6
# Largest gain of a Newton step from a peak, in nats.
LARGEST_GAIN = 0.5
# Particles do not belong to a normal mode if their distance from its peak, or the median of their
# log densities, is this many standard deviations from its expected value.
FAR, FAR_BELOW = 4.0, 2.0
# Smallest share of the mass that counts, and smallest number of particles that a mode gets.
SMALLEST_SHARE = 0.01
FEWEST_ADDED = 8


class Searched(NamedTuple):
    """The result of a search."""

    particles: Float[Array, "n d"]
    """The particles, some of them moved to modes that held none."""
    modes: Modes | None = None
    """The modes, if there are several."""
    num_gradients: int = 0
    """Gradients of all particles that the search took."""


class _Peak(NamedTuple):
    """A normal approximation at a peak."""

    position: Float[np.ndarray, " d"]
    root: Float[np.ndarray, "d d"]
    """A square root of the covariance."""
    log_mass: float
    is_held: bool
    """Whether particles climb to it."""


class _Batches:
    """Log densities and scores of a batch, in double precision; counts evaluations.

    Arguments:
        root: a square root of the particles' covariance, whose units the positions are in.
    """

    def __init__(self, target: Target, root: Float[np.ndarray, "d d"], dtype: np.dtype):
        self._target, self.root, self._dtype, self.number = target, root, dtype, 0

    def __call__(self, positions: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray]:
        self.number += 1
        there = np.asarray(positions @ self.root.T, self._dtype)
        found = Scores(*jax.device_get(evaluate(self._target, jax.device_put(there)))).masked()
        logs, scores = (each.astype(np.float64) for each in found)
        return logs, scores @ self.root


def search_modes(
    target: Target,
    particles: Float[Array, "n d"],
    starts: Float[np.ndarray, "n d"],
    key: PRNGKeyArray,
) -> Searched:
    """Find separate modes, and move some of the particles to those that hold none.

    Arguments:
        starts: the particles at the start of the run, from which climbs start, too.
        key: random key of the run.
    """
    num, dim = particles.shape
    if dim > MOST_DIMENSIONS or num < FEWEST_PARTICLES:
        return Searched(particles)
    here = np.asarray(particles, np.float64)
    root = _root_of_covariance(here)
    if not np.isfinite(root).all():
        return Searched(particles)
    batches = _Batches(target, root, np.dtype(particles.dtype))
    is_particle = np.arange(num) % PARTICLES_EVERY == 0
    positions, logs = _climbed(batches, here, is_particle, np.asarray(starts, np.float64), key)
    apart = _told_apart(batches, positions, logs)
    peaks, modes = [], None
    for members in apart:
        best = members[np.argmax(logs[members])]
        place, is_held = root @ positions[best], bool(is_particle[members].any())
        if len(apart) > 1:
            peaks.append(_peak(target, place, num, is_held))
        else:
            peaks += _inside_and_around(target, batches, here, place, float(logs[best]))
    peaks = [peak for peak in peaks if peak is not None]
    if peaks:
        known = [peak.log_mass for peak in peaks if peak.is_held]
        known = max([_log_mass_of(batches, here), *known])
        least = known + np.log(SMALLEST_SHARE)
        peaks = [peak for peak in peaks if peak.is_held or peak.log_mass > least]
        here = _with_missed(here, [peak for peak in peaks if not peak.is_held], known, key)
        particles = jnp.asarray(here, particles.dtype)
    if len(peaks) > 1:
        modes = _modes(peaks, particles.dtype)
    return Searched(particles, modes, num * batches.number)


def _climbed(
    batches: _Batches,
    particles: Float[np.ndarray, "n d"],
    is_particle: Bool[np.ndarray, " n"],
    starts: Float[np.ndarray, "n d"],
    key: PRNGKeyArray,
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, " n"]]:
    """As many ends of climbs as there are particles: those from particles, and distinct others.

    Arguments:
        is_particle: in which rows the ends of climbs from particles are returned.
    """
    num, ends = len(particles), []
    centre, rows = starts.mean(axis=0), np.arange(num)
    for number, (widths, most) in enumerate(zip(WIDTHS, MOST_EVALUATIONS, strict=True)):
        scaled = np.array(widths)[rows // PARTICLES_EVERY % len(widths), None]
        begin = centre + scaled * (starts - centre)
        if not number:
            begin = np.where(is_particle[:, None], particles, begin)
        ends.append(climb_all(batches, np.linalg.solve(batches.root, begin.T).T, most))
    positions = np.concatenate([end.positions for end in ends])
    logs = np.concatenate([end.log_densities for end in ends])
    # Most climbs end at the same few places: one of each is enough.
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    views = positions @ rng.normal(size=(positions.shape[1], 2))
    others = np.flatnonzero(~np.concatenate([is_particle, np.zeros(num, bool)]))
    places = np.round(np.column_stack([logs, views])[others], 1)
    distinct = others[np.unique(places, axis=0, return_index=True)[1]]
    distinct = distinct[np.argsort(-logs[distinct], kind="stable")]
    chosen = rows.copy()
    chosen[~is_particle] = np.resize(distinct, int(np.sum(~is_particle)))
    return positions[chosen], logs[chosen]


def _modes(peaks: list[_Peak], dtype: np.dtype) -> Modes:
    roots = np.stack([peak.root for peak in peaks])
    fields = (
        np.stack([peak.position for peak in peaks]),
        roots,
        np.linalg.inv(roots),
        np.linalg.slogdet(roots)[1],
        np.array([peak.log_mass for peak in peaks]) - max(peak.log_mass for peak in peaks),
    )
    return Modes(*(jnp.asarray(field, dtype) for field in fields))


def _told_apart(
    batches: _Batches, positions: Float[np.ndarray, "n d"], logs: Float[np.ndarray, " n"]
) -> list[np.ndarray]:
    """Rows of each mode, the highest first: those without a barrier to its highest peak."""
    left, modes = np.isfinite(logs), []
    while left.any() and len(modes) < MOST_MODES:
        best = int(np.argmax(np.where(left, logs, -np.inf)))
        between = [batches(points)[0] for points in points_between(positions, positions[best])]
        joined = left & ~has_barrier(np.stack(between), logs, logs[best])
        joined[best] = True
        modes.append(np.flatnonzero(joined))
        left &= ~joined
    return modes


def _peak(
    target: Target, position: Float[np.ndarray, " d"], num: int, is_held: bool
) -> _Peak | None:
    """The normal approximation at a peak; None if the log density is not rounded there.

    Arguments:
        num: number of particles; the program that evaluates as many positions is compiled already.
    """
    at = jnp.asarray(position, jnp.result_type(float))
    curvature = target.curvature_on_all_data(at, jnp.eye(len(position), dtype=at.dtype))
    found = evaluate(target, jax.device_put(np.tile(np.asarray(at), (num, 1))))
    log_density, score = (np.asarray(x, np.float64)[0] for x in found)
    if not np.isfinite(curvature).all():
        return None
    precisions, axes = np.linalg.eigh((curvature + curvature.T) / 2)
    if precisions[0] <= 1e-6 * precisions[-1]:
        return None
    newton = axes.T @ score / np.sqrt(precisions)
    if 0.5 * newton @ newton > LARGEST_GAIN:
        return None
    root = axes / np.sqrt(precisions)
    log_mass = float(log_density) - 0.5 * float(np.sum(np.log(precisions)))
    return _Peak(position + root @ newton, root, log_mass, is_held)


def _inside_and_around(
    target: Target,
    batches: _Batches,
    particles: Float[np.ndarray, "n d"],
    place: Float[np.ndarray, " d"],
    highest: float,
) -> list[_Peak]:
    """A narrow mode at the only peak, and the wide one that most particles are in; often none.

    Arguments:
        place, highest: the peak, and its log density.
    """
    dim = len(place)
    inside = np.linalg.solve(batches.root, particles.T).T
    logs, scores = batches(inside)
    # The log density of a normal mode falls by half of a χ² variable.
    if highest - np.median(logs) < 0.5 * dim + FAR_BELOW * np.sqrt(0.5 * dim):
        return []
    peak = _peak(target, place, len(particles), is_held=False)
    if peak is None:
        return []
    offsets = np.linalg.solve(peak.root, (particles - peak.position).T)
    is_around = np.sum(offsets**2, axis=0) > dim + FAR * np.sqrt(2 * dim)
    wide = _around(batches, inside[is_around], logs[is_around], scores[is_around])
    return [] if wide is None else [peak._replace(is_held=not is_around.all()), wide]


def _around(
    batches: _Batches,
    inside: Float[np.ndarray, "n d"],
    logs: Float[np.ndarray, " n"],
    scores: Float[np.ndarray, "n d"],
) -> _Peak | None:
    """The normal density whose scores, −A(u − c), are closest to those of these particles."""
    num, dim = inside.shape
    if num < 2 * dim:
        return None
    fit = np.linalg.lstsq(np.column_stack([inside, np.ones(num)]), scores)[0]
    precisions, axes = np.linalg.eigh(-(fit[:-1] + fit[:-1].T) / 2)
    if precisions[0] <= 1e-6 * precisions[-1]:
        return None
    root = axes / np.sqrt(precisions)
    centre = root @ (root.T @ fit[-1])
    squares = np.sum(np.linalg.solve(root, (inside - centre).T) ** 2, axis=0)
    log_volume = float(np.sum(np.log(np.diag(batches.root))) - 0.5 * np.sum(np.log(precisions)))
    log_mass = float(np.median(logs + 0.5 * squares)) + log_volume
    return _Peak(batches.root @ centre, batches.root @ root, log_mass, is_held=True)


def _root_of_covariance(particles: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d d"]:
    """A square root of the covariance, or the standard deviations if it is singular."""
    covariance = np.atleast_2d(np.cov(particles.T))
    scales = np.diag(np.sqrt(np.diag(covariance)) + 1e-12)
    try:
        root = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return scales
    return root if np.all(np.diag(root) > 1e-6 * np.diag(scales)) else scales


def _log_mass_of(batches: _Batches, particles: Float[np.ndarray, "n d"]) -> float:
    """The log mass of a normal density with the particles' moments, as `_Peak.log_mass`."""
    inside = np.linalg.solve(batches.root, particles.T).T
    logs, _ = batches(inside)
    squares = np.sum((inside - inside.mean(axis=0)) ** 2, axis=1)
    log_volume = float(np.sum(np.log(np.diag(batches.root))))
    return float(np.median(logs + 0.5 * squares)) + log_volume


def _with_missed(
    particles: Float[np.ndarray, "n d"], missed: list[_Peak], known: float, key: PRNGKeyArray
) -> Float[np.ndarray, "n d"]:
    """Particles of which some were replaced by draws at the missed peaks.

    Arguments:
        known: log mass of the modes that hold particles.
    """
    logs = np.array([peak.log_mass for peak in missed])
    shares = np.exp(logs - np.logaddexp.reduce([known, *logs]))
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    order, particles = rng.permutation(len(particles)), particles.copy()
    for peak, share in zip(missed, shares, strict=True):
        number = max(round(len(particles) * float(share)), FEWEST_ADDED)
        rows, order = order[:number], order[number:]
        noise = rng.normal(size=(len(rows), particles.shape[1]))
        particles[rows] = peak.position + noise @ peak.root.T
    return particles
