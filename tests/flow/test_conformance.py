"""What every method must do, whatever its direction, coordinates and mover."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from methods import EXACT_METHODS, METHODS, MINIBATCH_METHODS

import nvgd
from nvgd.densities import Gaussian

DENSITY = Gaussian([1.0, -1.0], [[1.0, 0.5], [0.5, 1.0]])
PARTICLES = jax.random.normal(jax.random.key(7), (24, 2))
ROWS = DENSITY.sample(jax.random.key(5), 60)


def batched() -> nvgd.Target:
    """The same Gaussian, as a sum over 60 rows of which a step sees 16."""
    precision = jnp.linalg.inv(DENSITY.covariance)
    rows = ROWS - jnp.mean(ROWS, axis=0) + DENSITY.mean
    return nvgd.Target(
        lambda x: 0.0 * x[0],
        dim=2,
        log_likelihood=lambda x, row: -0.5 * (x - row) @ precision @ (x - row) / 60,
        data=rows,
        batch_size=16,
    )


class Case(NamedTuple):
    """A method on a target on which it can run."""

    flow: nvgd.ParticleFlow
    target: nvgd.Target
    batch: Any
    gradients: int
    """Per step, of 24 particles."""


WHOLE, BATCHED = nvgd.Target(DENSITY.log_density, dim=2), batched()
BATCH = ROWS[:16]
CASES = {
    **{name: Case(flow, WHOLE, None, 24) for name, flow in METHODS.items()},
    "mala": Case(EXACT_METHODS["mala"], WHOLE, None, 48),
    "nvgd-metropolis": Case(EXACT_METHODS["nvgd-metropolis"], WHOLE, None, 36),
    "stochastic": Case(MINIBATCH_METHODS["stochastic"], BATCHED, BATCH, 72),
    "noise-aware": Case(MINIBATCH_METHODS["noise-aware"], BATCHED, BATCH, 48),
}

# One worker per method: its compiled programs then serve all of its tests.
pytestmark = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=pytest.mark.xdist_group(name))
        for name, case in CASES.items()
    ],
)


@eqx.filter_jit
def advance(case, particles, key, num_steps=3):
    """`num_steps` steps by `lax.scan`, as a user would write it; compiled once for all tests."""
    flow, target, batch, _ = case
    state = flow.init(target, particles, key=key)
    return jax.lax.scan(
        lambda state, _: flow.step(target, state, batch, key=key), state, length=num_steps
    )


def test_steps_can_be_scanned_jitted_and_vmapped_over_seeds(case):
    keys = jax.random.split(jax.random.key(0), 3)
    states, infos = jax.vmap(lambda key: advance(case, PARTICLES, key))(keys)
    assert states.particles.shape == (3, *PARTICLES.shape)
    assert infos.num_gradients.shape == (3, 3)
    for i, key in enumerate(keys):
        alone, _ = advance(case, PARTICLES, key)
        assert jnp.allclose(states.particles[i], alone.particles, atol=2e-3)


def test_gradients_are_counted_and_nothing_is_faulty(case):
    state, infos = advance(case, PARTICLES, jax.random.key(0))
    assert state.step == 3
    assert jnp.all(infos.num_gradients == case.gradients)
    assert jnp.all(infos.num_faulty_scores == 0)
    assert jnp.all(infos.num_faulty_moves == 0)
    assert jnp.all(infos.step_norm > 0)
    assert all(jnp.all(jnp.isfinite(leaf)) for leaf in infos.diagnostics.values())


def test_state_has_only_arrays_and_keeps_its_structure(case):
    state = case.flow.init(case.target, PARTICLES, key=jax.random.key(0))
    stepped, _ = advance(case, PARTICLES, jax.random.key(0))
    assert jax.tree.structure(state) == jax.tree.structure(stepped)
    for before, after in zip(jax.tree.leaves(state), jax.tree.leaves(stepped), strict=True):
        assert isinstance(before, jax.Array)
        assert (before.shape, before.dtype) == (after.shape, after.dtype)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(case):
    runs = [
        nvgd.sample(
            case.target, case.flow, num_particles=24, num_steps=7, seed=seed, progress=False
        )
        for seed in (3, 3, 4)
    ]
    first, again, other = (np.asarray(run.particles) for run in runs)
    assert first.tobytes() == again.tobytes()
    assert not np.allclose(first, other)
    for name, values in runs[0].history.items():
        assert values.tobytes() == runs[1].history[name].tobytes()


def test_double_precision_runs_in_double_precision(case):
    with jax.enable_x64(True):
        density = Gaussian([1.0, -1.0], [[1.0, 0.5], [0.5, 1.0]])
        target = nvgd.Target(density.log_density, dim=2) if case.batch is None else batched()
        start = jax.random.normal(jax.random.key(2), (12, 2), jnp.float64)
        posterior = nvgd.sample(target, case.flow, initial=start, num_steps=3, progress=False)
        assert posterior.particles.dtype == jnp.float64
        assert all(
            leaf.dtype == jnp.float64
            for leaf in jax.tree.leaves(posterior.state)
            if jnp.issubdtype(leaf.dtype, jnp.floating)
        )
        assert posterior.completed


def test_particles_come_nearer_to_the_target(case):
    start = PARTICLES + 3.0
    posterior = nvgd.sample(case.target, case.flow, initial=start, num_steps=60, progress=False)
    reference = DENSITY.sample(jax.random.key(1), 500)
    before = nvgd.metrics.energy_distance(start, reference)
    after = nvgd.metrics.energy_distance(posterior.particles, reference)
    assert after < 0.75 * before


def test_minibatches_reach_every_method_that_does_not_compare_log_densities(case):
    settings = {"num_particles": 10, "num_steps": 9, "progress": False}
    if any(case.flow is flow for flow in EXACT_METHODS.values()):
        with pytest.raises(nvgd.InputError, match="minibatches only estimate"):
            nvgd.sample(BATCHED, case.flow, **settings)
        return
    posterior = nvgd.sample(BATCHED, case.flow, **settings)
    assert posterior.completed
    assert posterior.history["num_gradients"][-1] == 9 * 10 * case.gradients // 24
