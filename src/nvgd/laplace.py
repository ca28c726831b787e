"""Starting particles from a normal approximation, found on the way to a mode."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from nvgd.compilation import compiled
from nvgd.errors import InputError, check_count, check_positive, plain
from nvgd.modes import climb, on_all_data
from nvgd.starts import AbstractStart, OwnStart
from nvgd.target import Target

# Up to this many dimensions the whole Hessian is used, above it its diagonal.
MAX_DENSE_DIMENSION = 300
NUM_PROBES = 32

# Draws by which an approximation is judged, and starts from which the best is chosen.
NUM_DRAWS = 50
NUM_STARTS = 20

# A direction along which the density does not fall gets this curvature, a deviation of ten, or
# this share of the largest, where all are small.
LEAST_CURVATURE = 1e-2
LEAST_SHARE = 1e-6


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
        positions = climb(target, _best_start(target, start_key)).positions
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
    log_densities, scores = map(np.asarray, on_all_data(target, starts))
    usable = np.isfinite(log_densities) & np.all(np.isfinite(scores), axis=-1)
    if not np.any(usable):
        raise InputError(
            f"no position with a finite log density among {NUM_STARTS} from which to climb: pass "
            "initial= with positions inside its support."
        )
    return starts[int(np.argmax(np.where(usable, log_densities, -np.inf)))]


@compiled
def _curvature_on_block(target: Target, position: Array, block: PyTree, probes: Array) -> Array:
    """The negative Hessian times each probe."""

    def score(at: Array) -> Array:
        return jax.grad(lambda x: target.estimate(x, block))(at)

    return -jax.vmap(lambda probe: jax.jvp(score, (position,), (probe,))[1])(probes)


def _fitted(target: Target, position: Float[Array, " d"], scale: float) -> _Normal:
    """A Newton step from the position, and the curvature there."""
    dim = target.dim
    is_dense = dim <= MAX_DENSE_DIMENSION
    probes = jnp.eye(dim)
    if not is_dense:
        probes = jax.random.rademacher(jax.random.key(0), (NUM_PROBES, dim), position.dtype)
    # Small matrices, once: on the host, where nothing has to be compiled for them.
    products, num_rows = np.zeros(probes.shape), 0
    for block in target.blocks() if target.batch_size is not None else (None,):
        size = 1 if block is None else len(jax.tree.leaves(block)[0])
        products += size * np.asarray(_curvature_on_block(target, position, block, probes))
        num_rows += size
    products = products / num_rows
    score = np.asarray(on_all_data(target, position[None])[1][0])
    if is_dense:
        # A curvature that is not finite spoils this candidate, not the search.
        curvatures, axes = np.linalg.eigh(np.nan_to_num(0.5 * (products + products.T)))
        precisions = _positive(curvatures)
        shift, factor = axes @ ((axes.T @ score) / precisions), axes / np.sqrt(precisions)
    else:
        precisions = _positive(np.mean(np.asarray(probes) * products, axis=0))
        shift, factor = score / precisions, 1 / np.sqrt(precisions)
    dtype = position.dtype
    return _Normal(position + jnp.asarray(shift, dtype), jnp.asarray(scale * factor, dtype))


def _positive(curvatures: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    sizes = np.abs(curvatures)
    least = min(LEAST_CURVATURE, LEAST_SHARE * sizes.max())
    return np.maximum(sizes, least if least > 0 else LEAST_CURVATURE)


def _evidence_bound(target: Target, normal: _Normal, key: PRNGKeyArray) -> float:
    """Estimate of E log p − E log q under q, up to a constant; −∞ if it is not finite."""
    draws = normal.draw(target, NUM_DRAWS, key)
    bound = float(np.mean(np.asarray(on_all_data(target, draws)[0]) - normal.log_density(draws)))
    return bound if np.isfinite(bound) else -np.inf
