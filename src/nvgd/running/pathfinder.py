"""Starting particles from a normal approximation along the path to a mode."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd._support.errors import InputError, check_count, check_positive, plain
from nvgd.running.starts import AbstractStart, OwnStart
from nvgd.targets.climbs import climb
from nvgd.targets.curvature import MAX_DENSE_DIMENSION, eigen_decomposed, positive
from nvgd.targets.target import Target

# Random probes for the diagonal of a large Hessian.
NUM_PROBES = 32

# Draws per estimate of the evidence lower bound, and candidates for the start of the climb.
NUM_DRAWS = 50
NUM_STARTS = 20


class Laplace(AbstractStart):
    """Draws from the best normal approximation along the path to a mode.

    As in Pathfinder (Zhang et al., 2022), L-BFGS climbs to a mode, a normal distribution with the
    local curvature is fitted at positions along the path, and the one with the largest evidence
    lower bound is kept. If the mode is typical of the posterior, the result is the Laplace
    approximation. If the mode lies in a narrow spike, as in hierarchical models, the result is an
    approximation from an earlier point of the path.

    Use it if the posterior is far from the origin or badly scaled. Do not use it for multimodal
    posteriors: it finds only one mode.

    Arguments:
        scale: factor on the standard deviations; above 1 for an overdispersed start.
        num_candidates: number of positions along the path at which to fit.

    Examples:
        >>> far = lambda x: -0.5 * jnp.sum((x - 5.0) ** 2)
        >>> start = nvgd.Laplace(scale=2.0)
        >>> posterior = nvgd.sample(far, nvgd.ULA(0.1), dim=2, initial=start, num_steps=50)
        >>> round(float(posterior.particles.mean()))
        5
    """

    scale: float = eqx.field(default=1.0, converter=plain)
    num_candidates: int = eqx.field(default=8, converter=plain)

    def __check_init__(self):
        check_positive("scale", self.scale)
        check_count("num_candidates", self.num_candidates)

    def prepared(self, target: Target, key: PRNGKeyArray) -> AbstractStart:
        """Fit the best normal distribution."""
        start_key, draw_key = jax.random.split(key)
        positions = climb(target.on_all_data_at, _best_start(target, start_key)).positions
        chosen = np.unique(np.linspace(0, len(positions) - 1, self.num_candidates).astype(int))
        candidates = [
            _fitted(target, jnp.asarray(positions[i], jnp.result_type(float)), self.scale)
            for i in chosen
        ]
        bounds = [_evidence_bound(target, normal, draw_key) for normal in candidates]
        return candidates[int(np.argmax(bounds))]

    def draw(self, target, num, key):
        """Fit the distribution and draw from it."""
        return self.prepared(target, key).draw(target, num, key)


class AnchorStart(AbstractStart):
    """Draws from the normal approximation at the anchor of the control variates."""

    def prepared(self, target, key):
        """Fit the normal approximation at the anchor."""
        del key
        assert target.anchor is not None
        return _fitted(target, target.anchor.position, 1.0)

    def draw(self, target, num, key):
        """Fit the approximation and draw from it."""
        return self.prepared(target, key).draw(target, num, key)


class _Normal(AbstractStart):
    centre: Float[Array, " d"]
    factor: Float[Array, "d d"] | Float[Array, " d"]
    """A square root of the covariance, or the standard deviations."""

    def draw(self, target, num, key):
        noise = jax.random.normal(key, (num, target.dim), self.centre.dtype)
        return self.centre + (
            noise @ self.factor.T if self.factor.ndim == 2 else noise * self.factor
        )

    def log_density(self, draws: Float[Array, "n d"]) -> Float[np.ndarray, " n"]:
        """Log density, up to a constant that depends only on the dimension."""
        offsets, factor = np.asarray(draws - self.centre), np.asarray(self.factor)
        if factor.ndim == 1:
            noise, log_volume = offsets / factor, np.sum(np.log(factor))
        else:
            noise = np.linalg.solve(factor, offsets.T).T
            log_volume = np.linalg.slogdet(factor)[1]
        return -0.5 * np.sum(noise**2, axis=-1) - log_volume


def _best_start(target: Target, key: PRNGKeyArray) -> Float[Array, " d"]:
    starts = OwnStart().draw(target, NUM_STARTS, key)
    found = target.on_all_data(starts)
    usable = np.asarray(found.is_finite)
    if not np.any(usable):
        raise InputError(
            f"no position with a finite log density among {NUM_STARTS} from which to climb: pass "
            "initial= with positions inside its support."
        )
    return starts[int(np.argmax(np.where(usable, np.asarray(found.log_densities), -np.inf)))]


def _fitted(target: Target, position: Float[Array, " d"], scale: float) -> _Normal:
    """The normal approximation at a position: centred at its Newton step, with its curvature."""
    dim = target.dim
    is_dense = dim <= MAX_DENSE_DIMENSION
    probes = jnp.eye(dim)
    if not is_dense:
        probes = jax.random.rademacher(jax.random.key(0), (NUM_PROBES, dim), position.dtype)
    products = target.curvature_on_all_data(position, probes)
    score = np.asarray(target.on_all_data_at(position)[1])
    if is_dense:
        # A curvature that is not finite makes this candidate useless, but does not end the search.
        precisions, axes = eigen_decomposed(products)
        shift, factor = axes @ ((axes.T @ score) / precisions), axes / np.sqrt(precisions)
    else:
        precisions = positive(np.mean(np.asarray(probes) * products, axis=0))
        shift, factor = score / precisions, 1 / np.sqrt(precisions)
    dtype = position.dtype
    return _Normal(position + jnp.asarray(shift, dtype), jnp.asarray(scale * factor, dtype))


def _evidence_bound(target: Target, normal: _Normal, key: PRNGKeyArray) -> float:
    """Estimate of the evidence lower bound E_q[log p − log q], up to a constant.

    Returns −∞ if the estimate is not finite.
    """
    draws = normal.draw(target, NUM_DRAWS, key)
    log_densities = np.asarray(target.on_all_data(draws).log_densities)
    bound = float(np.mean(log_densities - normal.log_density(draws)))
    return bound if np.isfinite(bound) else -np.inf
