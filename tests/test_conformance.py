"""What every method must do, whatever its direction, coordinates and mover."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from methods import METHODS

import nvgd
from nvgd.densities import Gaussian

DENSITY = Gaussian([1.0, -1.0], [[1.0, 0.5], [0.5, 1.0]])
TARGET = nvgd.Target(DENSITY.log_density, dim=2)
PARTICLES = jax.random.normal(jax.random.key(7), (24, 2))

# One worker a method: its compiled programs then serve all of its tests.
pytestmark = pytest.mark.parametrize(
    "flow",
    [
        pytest.param(flow, id=name, marks=pytest.mark.xdist_group(name))
        for name, flow in METHODS.items()
    ],
)


@eqx.filter_jit
def advance(flow, particles, key, num_steps=3):
    """`num_steps` steps by `lax.scan`, as a user would write it; compiled once for all tests."""
    state = flow.init(TARGET, particles, key=key)
    return jax.lax.scan(lambda state, _: flow.step(TARGET, state, key=key), state, length=num_steps)


def test_steps_can_be_scanned_jitted_and_vmapped_over_seeds(flow):
    keys = jax.random.split(jax.random.key(0), 3)
    states, infos = jax.vmap(lambda key: advance(flow, PARTICLES, key))(keys)
    assert states.particles.shape == (3, *PARTICLES.shape)
    assert infos.num_gradients.shape == (3, 3)
    for i, key in enumerate(keys):
        alone, _ = advance(flow, PARTICLES, key)
        assert jnp.allclose(states.particles[i], alone.particles, atol=2e-3)


def test_one_gradient_a_particle_is_counted_and_nothing_is_faulty(flow):
    state, infos = advance(flow, PARTICLES, jax.random.key(0))
    assert state.step == 3
    assert jnp.all(infos.num_gradients == len(PARTICLES))
    assert jnp.all(infos.num_faulty_scores == 0)
    assert jnp.all(infos.num_faulty_moves == 0)
    assert jnp.all(infos.step_norm > 0)
    assert all(jnp.all(jnp.isfinite(leaf)) for leaf in infos.diagnostics.values())


def test_state_has_only_arrays_and_keeps_its_structure(flow):
    state = flow.init(TARGET, PARTICLES, key=jax.random.key(0))
    stepped, _ = advance(flow, PARTICLES, jax.random.key(0))
    assert jax.tree.structure(state) == jax.tree.structure(stepped)
    for before, after in zip(jax.tree.leaves(state), jax.tree.leaves(stepped), strict=True):
        assert isinstance(before, jax.Array)
        assert (before.shape, before.dtype) == (after.shape, after.dtype)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(flow):
    runs = [
        nvgd.sample(TARGET, flow, num_particles=24, num_steps=7, seed=seed, progress=False)
        for seed in (3, 3, 4)
    ]
    first, again, other = (np.asarray(run.particles) for run in runs)
    assert first.tobytes() == again.tobytes()
    assert not np.allclose(first, other)
    for name, values in runs[0].history.items():
        assert values.tobytes() == runs[1].history[name].tobytes()


def test_double_precision_runs_in_double_precision(flow):
    with jax.enable_x64(True):
        density = Gaussian([1.0, -1.0], [[1.0, 0.5], [0.5, 1.0]])
        posterior = nvgd.sample(
            density.log_density, flow, dim=2, num_particles=12, num_steps=3, progress=False
        )
        assert posterior.particles.dtype == jnp.float64
        assert all(
            leaf.dtype == jnp.float64
            for leaf in jax.tree.leaves(posterior.state)
            if jnp.issubdtype(leaf.dtype, jnp.floating)
        )
        assert posterior.completed


def test_particles_come_nearer_to_the_target(flow):
    start = PARTICLES + 3.0
    posterior = nvgd.sample(TARGET, flow, initial=start, num_steps=60, progress=False)
    reference = DENSITY.sample(jax.random.key(1), 500)
    before = nvgd.metrics.energy_distance(start, reference)
    after = nvgd.metrics.energy_distance(posterior.particles, reference)
    assert after < 0.75 * before


def test_minibatches_reach_every_method(flow):
    rows = DENSITY.sample(jax.random.key(5), 60)
    target = nvgd.Target(
        lambda x: -0.5 * x @ x,
        dim=2,
        log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2) / 60,
        data=rows,
        batch_size=16,
    )
    posterior = nvgd.sample(target, flow, num_particles=10, num_steps=9, progress=False)
    assert posterior.completed
    assert posterior.history["num_gradients"][-1] == 90
