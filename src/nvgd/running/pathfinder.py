"""Starting particles from a normal approximation, found on the way to a mode."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd._support.errors import InputError, check_count, check_positive, plain
from nvgd.running.starts import AbstractStart, OwnStart
from nvgd.targets.curvature import MAX_DENSE_DIMENSION, eigen_decomposed, positive
from nvgd.targets.mode_search import climb
from nvgd.targets.target import Target

# Random probes that the diagonal of a large Hessian is estimated from.
NUM_PROBES = 32

# Draws by which an approximation is judged, and starts from which the best is chosen.
NUM_DRAWS = 50
NUM_STARTS = 20


class Laplace(AbstractStart):
    """Draws from the normal distribution that fits best among those along the way to a mode.

    Like Pathfinder (Zhang et al., 2022): climb by L-BFGS, lay a normal distribution with the local
    curvature at positions along the way, and keep the one with the largest evidence lower bound.
    At a mode that describes its posterior, this is Laplace's approximation; where the mode lies in
    a spike, as in hierarchical models, it is one laid before the spike. Choose it if the posterior
    is far from the origin or badly scaled; not for several modes, of which it finds one.

    Arguments:
        scale: factor on the standard deviations; above 1 to be on the safe side.
        num_candidates: positions along the way at which to try.
    """

    scale: float = eqx.field(default=1.0, converter=plain)
    num_candidates: int = eqx.field(default=8, converter=plain)

    def __check_init__(self):
        check_positive("scale", self.scale)
        check_count("num_candidates", self.num_candidates)

    def prepared(self, target: Target, key: PRNGKeyArray) -> AbstractStart:
        """The best normal distribution."""
        start_key, draw_key = jax.random.split(key)
        positions = climb(target.on_all_data_at, _best_start(target, start_key)).positions
        chosen = np.unique(np.linspace(0, len(positions) - 1, self.num_candidates).astype(int))
        candidates = [
            _fitted(target, jnp.asarray(positions[i], jnp.zeros(()).dtype), self.scale)
            for i in chosen
        ]
        bounds = [_evidence_bound(target, normal, draw_key) for normal in candidates]
        return candidates[int(np.argmax(bounds))]

    def draw(self, target, num, key):
        """Draws of the distribution, fitted anew."""
        return self.prepared(target, key).draw(target, num, key)


class AnchorStart(AbstractStart):
    """Draws from the normal approximation at the mode that control variates are held against."""

    def prepared(self, target, key):
        """The curvature at the anchor."""
        del key
        assert target.anchor is not None
        return _fitted(target, target.anchor.position, 1.0)

    def draw(self, target, num, key):
        """Draws of the approximation, fitted anew."""
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
        """Up to the constant that all have in common."""
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
    """A Newton step from the position, and the curvature there."""
    dim = target.dim
    is_dense = dim <= MAX_DENSE_DIMENSION
    probes = jnp.eye(dim)
    if not is_dense:
        probes = jax.random.rademacher(jax.random.key(0), (NUM_PROBES, dim), position.dtype)
    products = target.curvature_on_all_data(position, probes)
    score = np.asarray(target.on_all_data_at(position)[1])
    if is_dense:
        # A curvature that is not finite spoils this candidate, not the search.
        precisions, axes = eigen_decomposed(products)
        shift, factor = axes @ ((axes.T @ score) / precisions), axes / np.sqrt(precisions)
    else:
        precisions = positive(np.mean(np.asarray(probes) * products, axis=0))
        shift, factor = score / precisions, 1 / np.sqrt(precisions)
    dtype = position.dtype
    return _Normal(position + jnp.asarray(shift, dtype), jnp.asarray(scale * factor, dtype))


def _evidence_bound(target: Target, normal: _Normal, key: PRNGKeyArray) -> float:
    """Estimate of E log p − E log q under q, up to a constant; −∞ if it is not finite."""
    draws = normal.draw(target, NUM_DRAWS, key)
    log_densities = np.asarray(target.on_all_data(draws).log_densities)
    bound = float(np.mean(log_densities - normal.log_density(draws)))
    return bound if np.isfinite(bound) else -np.inf
