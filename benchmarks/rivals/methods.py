"""The samplers, each as a compiled piece of a run, with its particles measured in between.

Methods with a step size try the same few, and the one with the smallest last energy distance is
chosen. `nvgd.sample` and NUTS, which have none to choose, are in `running`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from blackjax.vi import svgd
from numpyro.contrib.einstein import RBFKernel, SteinVI
from numpyro.infer import init_to_uniform
from numpyro.infer.autoguide import AutoNormal

import nvgd
from benchmarks.rivals.targets import BenchmarkTarget, as_target
from nvgd.flow.particle_flow import ParticleFlow

# How many times a run is measured.
NUM_LOOKS = 40
LEARNING_RATES = (0.02, 0.1)
LANGEVIN_STEPS = (1e-5, 1e-3, 1e-2)


class Piece(NamedTuple):
    """A part of a run."""

    start: Any
    advance: Callable[[Any, jax.Array], Any]
    """Takes `steps` steps from a state; jitted."""
    draws: Callable[[Any], jax.Array]
    steps: int
    """Steps per call."""


Builder = Callable[[BenchmarkTarget, float, jax.Array], Piece]


def _flow(flow: ParticleFlow, target: BenchmarkTarget, key: jax.Array) -> Piece:
    model = as_target(target)
    flow = flow.for_run(target.num_steps)
    particles = jax.random.normal(key, (target.num_particles, target.dim))
    steps = target.num_steps // NUM_LOOKS

    @jax.jit
    def advance(state: Any, key: jax.Array) -> Any:
        return jax.lax.scan(
            lambda state, _: (flow.step(model, state, key=key)[0], None), state, length=steps
        )[0]

    start = flow.init(model, particles, key=key)
    return Piece(start, advance, lambda state: state.particles, steps)


def default(target: BenchmarkTarget, _: float, key: jax.Array) -> Piece:
    """The default's flow as one program, for the cost of a step; `nvgd.sample` takes several."""
    return _flow(nvgd.NVGD(), target, key)


def paper(target: BenchmarkTarget, rate: float, key: jax.Array) -> Piece:
    """The paper's method, moved by Adam."""
    return _flow(nvgd.NVGD.paper(optimizer=optax.adam(rate)), target, key)


def kernel(target: BenchmarkTarget, rate: float, key: jax.Array) -> Piece:
    """Our SVGD, moved by Adam."""
    return _flow(nvgd.SVGD(optimizer=optax.adam(rate)), target, key)


def langevin(target: BenchmarkTarget, step_size: float, key: jax.Array) -> Piece:
    """Our ULA."""
    return _flow(nvgd.ULA(step_size), target, key)


def blackjax_svgd(target: BenchmarkTarget, rate: float, key: jax.Array) -> Piece:
    """BlackJAX's SVGD with its RBF kernel and median heuristic, moved by Adam."""
    particles = jax.random.normal(key, (target.num_particles, target.dim))
    optimizer = optax.adam(rate)
    step = svgd.build_kernel(optimizer)
    score = jax.grad(target.log_density)
    steps = target.num_steps // NUM_LOOKS

    def one(state: Any, _: None) -> tuple[Any, None]:
        # The median heuristic writes into the dictionary that it is given.
        state = state._replace(kernel_parameters=dict(state.kernel_parameters))
        return step(svgd.update_median_heuristic(state), score, svgd.rbf_kernel), None

    @jax.jit
    def advance(state: Any, key: jax.Array) -> Any:
        del key
        return jax.lax.scan(one, state, length=steps)[0]

    start = svgd.init(particles, {"length_scale": jnp.array(1.0)}, optimizer)
    return Piece(start, advance, lambda state: state.particles, steps)


def stein_vi(target: BenchmarkTarget, rate: float, key: jax.Array) -> Piece:
    """NumPyro's Stein mixture: its default of ten components and ten draws each, Adagrad."""

    def model() -> None:
        # Used for the start only; masked, it has no weight in the log density.
        flat = dist.Normal(0, 1).expand([target.dim]).to_event(1).mask(False)
        position = jnp.asarray(numpyro.sample("x", flat))
        numpyro.factor("log_density", target.log_density(position))

    guide = AutoNormal(model, init_loc_fn=init_to_uniform(radius=2), init_scale=0.1)
    inference = SteinVI(model, guide, numpyro.optim.Adagrad(rate), RBFKernel())
    state = inference.init(key)
    steps = target.num_steps // NUM_LOOKS

    @jax.jit
    def advance(state: Any, key: jax.Array) -> Any:
        del key
        return jax.lax.scan(
            lambda state, _: (inference.update(state)[0], None), state, length=steps
        )[0]

    def draws(state: Any) -> jax.Array:
        mixture = inference.get_params(state)
        location, scale = mixture["x_auto_loc"], mixture["x_auto_scale"]
        which = jnp.arange(target.num_particles) % len(location)
        noise = jax.random.normal(jax.random.key(9), (target.num_particles, target.dim))
        return location[which] + scale[which] * noise

    return Piece(state, advance, draws, steps)


class Method(NamedTuple):
    """A sampler and the step sizes to choose from."""

    build: Builder
    choices: Sequence[float]


METHODS: dict[str, Method] = {
    "nvgd.NVGD.paper": Method(paper, LEARNING_RATES),
    "nvgd.SVGD": Method(kernel, LEARNING_RATES),
    "nvgd.ULA": Method(langevin, LANGEVIN_STEPS),
    "BlackJAX SVGD": Method(blackjax_svgd, LEARNING_RATES),
    "NumPyro SteinVI": Method(stein_vi, LEARNING_RATES),
}
