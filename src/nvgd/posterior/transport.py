"""A flow as a transport map: fresh draws, importance weights, the evidence.

Euler steps x ← x + ε f(x) without noise are maps. Fresh draws of a base density, to which the
fields were not fitted, remain independent when pushed through all steps, and their density is

    log q(x_T) = log q₀(x₀) − Σ_t log|det ∂x_{t+1}/∂x_t|
"""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from nvgd._support.compilation import compiled
from nvgd._support.errors import InputError, check_choice, check_count, check_kind
from nvgd.flow.aim import AbstractField
from nvgd.flow.coordinates.base import AbstractFrame
from nvgd.flow.movers.plain import Euler
from nvgd.flow.particle_flow import FlowState, ParticleFlow
from nvgd.posterior.base_densities import BaseDensity, StandardNormal
from nvgd.posterior.importance import Weighted
from nvgd.targets.target import Target

# Up to this many dimensions Jacobians are computed; above, their log determinant is estimated.
MOST_DIMENSIONS_FOR_JACOBIAN = 20
# Number of terms in the series of the log determinant; each costs one Jacobian-vector product.
SERIES_TERMS = 10
# Number of draws that `weigh` pushes in one compiled call.
DRAWS_AT_ONCE = 2000


class Pushed(NamedTuple):
    """Draws after the map, with its log determinants."""

    positions: Float[Array, "n d"]
    log_determinants: Float[Array, " n"]
    """log|det ∂x_T/∂x_0|."""
    is_folded: Bool[Array, " n"]
    """Whether a step reversed orientation at the draw, and so is too large to be one-to-one; only
    exact determinants detect this."""


class Transport(eqx.Module):
    """The fields of all steps of a flow, as a map for other draws; built by `learn_transport`.

    Arguments:
        target: p.
        mover: the Euler steps of the flow.
        base: q₀.
        particles: final positions of the particles to which the fields were fitted.
        steps: arrays of the frame and field of every step, stacked along the first axis.
        skeleton: the parts of frame and field that are not arrays.
    """

    target: Target
    mover: Euler
    base: BaseDensity
    particles: Float[Array, "n d"]
    steps: PyTree
    skeleton: PyTree = eqx.field(static=True)

    def push(
        self,
        draws: Float[Array, "n d"],
        determinant: Literal["auto", "exact", "stochastic"] = "auto",
        *,
        key: PRNGKeyArray | None = None,
    ) -> Pushed:
        """Move draws of the base along all steps, with the log determinant of the map.

        Arguments:
            draws: draws of the base density.
            determinant: "exact" computes the Jacobian of every step; "stochastic" estimates
                tr log(I + J) = Σ_k (−1)^(k+1) tr J^k / k by ten terms along one random direction
                per step; "auto" is exact up to twenty dimensions.
            key: key for the random directions.
        """
        check_choice("determinant", determinant, ("auto", "exact", "stochastic"))
        dim = self.target.dim
        if draws.ndim != 2 or draws.shape[1] != dim:
            raise InputError(f"draws must have shape (num_draws, {dim}), got {draws.shape}.")
        if determinant == "auto":
            determinant = "exact" if dim <= MOST_DIMENSIONS_FOR_JACOBIAN else "stochastic"
        key = jax.random.key(0) if key is None else key
        return _push(self, draws, determinant == "exact", key)

    def sample(self, num_draws: int, *, seed: int = 0) -> Float[Array, "n d"]:
        """Fresh independent draws from the end of the flow, without new training."""
        check_count("num_draws", num_draws)
        draws = self.base.sample(jax.random.key(seed), num_draws)
        return _push(self, draws, False, jax.random.key(seed), weigh=False).positions

    def weigh(
        self,
        num_draws: int = 2000,
        determinant: Literal["auto", "exact", "stochastic"] = "auto",
        *,
        seed: int = 0,
    ) -> Weighted:
        """Fresh draws with importance weights p/q, which give the log evidence.

        Arguments:
            num_draws: number of draws.
            determinant: as for `push`.
            seed: the same seed gives the same draws.
        """
        check_count("num_draws", num_draws, minimum=2)
        positions, log_weights, num_folded = [], [], 0
        for first in range(0, num_draws, DRAWS_AT_ONCE):
            draw_key, probe_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), first))
            draws = self.base.sample(draw_key, min(DRAWS_AT_ONCE, num_draws - first))
            pushed = self.push(draws, determinant, key=probe_key)
            log_q = jax.vmap(self.base.log_density)(draws) - pushed.log_determinants
            log_p, _ = self.target.log_densities_and_scores(pushed.positions)
            positions.append(np.asarray(pushed.positions))
            log_weights.append(np.asarray(log_p - log_q, np.float64))
            num_folded += int(jnp.sum(pushed.is_folded))
        if num_folded > num_draws // 100:
            raise InputError(
                f"the map is not one-to-one at {num_folded} of {num_draws} draws, so that their "
                "density is not known: learn it with smaller steps, or other coordinates."
            )
        return Weighted(np.concatenate(positions), np.concatenate(log_weights))


def learn_transport(
    target: Target,
    flow: ParticleFlow,
    base: BaseDensity | None = None,
    *,
    num_particles: int = 200,
    num_steps: int = 300,
    seed: int = 0,
) -> Transport:
    """Run a flow from draws of a base density, and keep the field of every step.

        transport = learn_transport(target, NVGD.paper(0.05), num_steps=200)
        weighted = transport.weigh(4000)
        weighted.log_evidence, weighted.standard_error, weighted.pareto_shape

    Importance weighting for SVGD: Yao et al. (2020) and others. The density along a flow of learned
    fields is computed as in normalising flows.

    Arguments:
        target: p, without minibatches.
        flow: deterministic Euler steps along a direction with a field.
        base: q₀, N(0, I) by default. Weights are best if it is close to the target and somewhat
            wider.
        num_particles: number of particles to which the fields are fitted.
        num_steps: number of steps of the flow.
        seed: the same seed gives the same transport.

    Examples:
        >>> target = nvgd.Target(lambda x: -0.5 * jnp.sum(x**2 / 2), dim=2)
        >>> flow = nvgd.SVGD(0.1, coordinates=nvgd.coordinates.Whitened())
        >>> base = nvgd.densities.Gaussian([0.0, 0.0], [4.0, 4.0])
        >>> weighted = nvgd.learn_transport(target, flow, base, num_steps=20).weigh(1000)
        >>> abs(weighted.log_evidence - math.log(4 * math.pi)) < 3 * weighted.standard_error
        True
    """
    check_kind("target", target, Target, "Target(log_density, dim=2)")
    check_kind("flow", flow, ParticleFlow, "NVGD.paper()")
    check_count("num_particles", num_particles, minimum=2)
    check_count("num_steps", num_steps)
    base = StandardNormal(target.dim) if base is None else base
    if not all(hasattr(base, name) for name in ("dim", "log_density", "sample")):
        raise InputError(
            f"base must be a density such as densities.Gaussian(mean, covariance), got {base!r}."
        )
    if base.dim != target.dim:
        raise InputError(f"base must have the target's {target.dim} dimensions, got {base.dim}.")
    mover = _checked_mover(target, flow)
    flow = flow.for_run(num_steps)
    start_key, init_key, run_key = jax.random.split(jax.random.key(seed), 3)
    state = flow.init(target, base.sample(start_key, num_particles), key=init_key)
    shapes = eqx.filter_eval_shape(_aim, flow, target, state, run_key)
    skeleton = eqx.filter(shapes, _is_shape, inverse=True)
    state, steps = _learn(flow, target, state, num_steps, run_key)
    if not bool(jnp.all(jnp.isfinite(state.particles))):
        raise InputError("the particles became non-finite: learn the transport with smaller steps.")
    return Transport(target, mover, base, state.particles, steps, skeleton)


def _checked_mover(target: Target, flow: ParticleFlow) -> Euler:
    """The mover of the flow, if every step is a map of each particle by itself."""
    name, capabilities = type(flow.direction).__name__, flow.direction.capabilities
    if capabilities.noise_share:
        raise InputError(
            f"{name} adds noise, after which the particles' density is not known: use a direction "
            "without noise."
        )
    if not isinstance(flow.mover, Euler):
        raise InputError(
            f"{type(flow.mover).__name__} moves a particle depending on more than its position "
            "(memory, caps, rebirth), so its steps are not maps: use Euler(step_size)."
        )
    if not capabilities.has_field or capabilities.depends_on == "resting":
        raise InputError(
            f"{name} has no field to push other draws along: use Neural() or Kernel()."
        )
    if target.is_noisy:
        raise InputError("weights compare densities exactly: leave the target's batch_size out.")
    return flow.mover


def _aim(
    flow: ParticleFlow, target: Target, state: FlowState, key: PRNGKeyArray
) -> tuple[AbstractFrame, Any]:
    aim = flow.aim(target, state, key=key).aim
    return aim.frame, aim.field


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


@compiled
def _learn(
    flow: ParticleFlow, target: Target, state: FlowState, num_steps: int, key: PRNGKeyArray
) -> tuple[FlowState, PyTree]:
    def step(state: FlowState, _: None) -> tuple[FlowState, PyTree]:
        aimed = flow.aim(target, state, key=key)
        arrays = eqx.filter((aimed.aim.frame, aimed.aim.field), eqx.is_array)
        return flow.move(state, aimed, key=key)[0], arrays

    return jax.lax.scan(step, state, length=num_steps)


@compiled
def _push(
    transport: Transport,
    draws: Float[Array, "n d"],
    exact: bool,
    key: PRNGKeyArray,
    weigh: bool = True,
) -> Pushed:
    target, mover = transport.target, transport.mover

    def move(parts: tuple[AbstractFrame, AbstractField], x: Array, index: Array) -> Array:
        frame, field = parts
        _, scores = target.log_densities_and_scores(x[None])
        expressed, expressed_scores = frame.express(x[None], scores)
        moved = mover.drift(expressed, field(expressed, expressed_scores), index)
        return frame.restore(moved)[0]

    def step(pushed: Pushed, numbered: tuple[Int[Array, ""], PyTree]) -> tuple[Pushed, None]:
        index, arrays = numbered
        parts = eqx.combine(arrays, transport.skeleton)
        positions = jax.vmap(lambda x: move(parts, x, index))(pushed.positions)
        if not weigh:
            return pushed._replace(positions=positions), None
        if exact:
            jacobians = jax.vmap(jax.jacfwd(lambda x: move(parts, x, index)))(pushed.positions)
            signs, changes = jnp.linalg.slogdet(jacobians)
        else:
            step_key = jax.random.fold_in(key, index)
            probes = jax.random.rademacher(step_key, draws.shape, draws.dtype)
            changes = jax.vmap(lambda x, z: _log_series(lambda y: move(parts, y, index), x, z))(
                pushed.positions, probes
            )
            signs = jnp.ones_like(changes)
        return (
            Pushed(
                positions,
                pushed.log_determinants + changes,
                pushed.is_folded | (signs <= 0),
            ),
            None,
        )

    num_steps = len(jax.tree.leaves(transport.steps)[0])
    start = Pushed(draws, jnp.zeros(len(draws), draws.dtype), jnp.zeros(len(draws), bool))
    pushed, _ = jax.lax.scan(step, start, (jnp.arange(num_steps), transport.steps))
    return pushed


def _log_series(function: Any, x: Float[Array, " d"], probe: Float[Array, " d"]) -> Array:
    """zᵀ log(I + J) z with J = ∂(function − identity)/∂x, by the first terms of its series."""
    _, along = jax.linearize(lambda y: function(y) - y, x)

    def term(carry: tuple[Array, Array], power: Array) -> tuple[tuple[Array, Array], None]:
        vector, total = carry
        vector = -along(vector)
        return (vector, total - probe @ vector / power), None

    powers = jnp.arange(1, SERIES_TERMS + 1, dtype=x.dtype)
    (_, total), _ = jax.lax.scan(term, (probe, jnp.zeros((), x.dtype)), powers)
    return total
