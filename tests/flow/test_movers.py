"""What each mover does with the velocities it is given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from aims import aim_of

import nvgd
from nvgd import coordinates, directions, movers


def move(mover, particles, velocities, log_densities=None, step=0):
    moved, _ = mover(
        aim_of(particles, velocities, log_densities),
        mover.init(particles),
        step=jnp.array(step),
        key=jax.random.key(0),
    )
    return moved


def test_a_capped_step_is_plain_where_it_is_short_and_of_one_length_where_it_is_not():
    velocities = jnp.stack([jnp.full(4, value) for value in (0.5, -1e6, 0.0, 0.0, 0.0)])
    moved = move(movers.Capped(0.1, 0.2), jnp.zeros((5, 4)), velocities)
    assert np.allclose(moved[:3, 0], [0.05, -0.2, 0.0])


def test_particles_that_all_go_the_same_way_go_further():
    moved = move(movers.Capped(0.1, 0.2), jnp.zeros((5, 4)), jnp.full((5, 4), 1e6))
    assert np.allclose(moved, 0.6)


def test_capped_steps_fall_to_a_tenth_over_the_second_half_of_a_run():
    mover = movers.Capped(0.1, 10.0).for_run(100)
    sizes = [
        float(move(mover, jnp.zeros((2, 1)), jnp.ones((2, 1)), step=k)[0, 0])
        for k in (0, 50, 75, 100)
    ]
    assert np.allclose(sizes, [0.1, 0.1, 0.1 * 10**-0.5, 0.01])


def test_stranded_particles_are_reborn_beside_good_ones_and_only_when_it_is_time():
    particles = jax.random.normal(jax.random.key(1), (50, 2)).at[0].set(1e4)
    log_densities = -0.5 * jnp.sum(particles**2, axis=1)
    mover = movers.Reborn(movers.Capped(), every=20).for_run(1000)
    still = jnp.zeros_like(particles)
    waiting = move(mover, particles, still, log_densities, step=18)
    assert np.allclose(waiting, particles)
    reborn = move(mover, particles, still, log_densities, step=19)
    assert jnp.linalg.norm(reborn[0]) < 10
    assert np.allclose(reborn[1:], particles[1:])
    late = move(mover, particles, still, log_densities, step=719)
    assert np.allclose(late, particles)


def test_rebirth_takes_the_inner_movers_step():
    particles = jax.random.normal(jax.random.key(0), (20, 2))
    for inner in (movers.Capped(), movers.Euler(0.1)):
        plain = move(inner, particles, -particles)
        assert np.array_equal(move(movers.Reborn(inner), particles, -particles), plain)


def test_rebirth_refuses_movers_with_a_rule_of_their_own():
    with pytest.raises(nvgd.InputError, match="cannot wrap Metropolis, which accepts"):
        movers.Reborn(movers.Metropolis(movers.Euler(0.1)))


def test_momentum_with_noise_keeps_the_targets_variance():
    flow = nvgd.ParticleFlow(coordinates.Identity(), directions.Langevin(), movers.Momentum(0.01))
    start = 2.0 * jax.random.normal(jax.random.key(1), (5000, 1))
    posterior = nvgd.sample(
        lambda x: -0.5 * x @ x / 4.0, flow, dim=1, initial=start, num_steps=300, progress=False
    )
    # Four standard errors, and a bias of the order of ε.
    assert np.isclose(np.var(posterior.particles), 4.0, rtol=0.09)


def test_known_noise_of_minibatches_is_taken_off_the_injected_noise():
    """SGLD on N(0, 1/N) data: σ²(1 + εV/2)/(1 − ε/2σ²) without, σ²/(1 − ε/2σ²) with correction."""
    num_rows, batch_size, step_size = 1000, 10, 4e-4
    rows = 0.16 * jax.random.normal(jax.random.key(2), (num_rows, 1))
    rows = rows - jnp.mean(rows)
    target = nvgd.Target(
        lambda x: 0.0 * x[0],
        dim=1,
        log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2),
        data=rows,
        batch_size=batch_size,
    )
    noise = num_rows**2 / batch_size * (1 - batch_size / num_rows) * float(jnp.var(rows, ddof=1))
    ula = (1 / num_rows) / (1 - step_size * num_rows / 2)
    by_variance = {
        ula * (1 + step_size * noise / 2): movers.Euler(step_size),
        ula: movers.NoiseAware(movers.Euler(step_size), num_parts=5),
    }
    for expected, mover in by_variance.items():
        flow = nvgd.ParticleFlow(coordinates.Identity(), directions.Langevin(), mover)
        posterior = nvgd.sample(
            target,
            flow,
            initial=jnp.zeros((20, 1)),
            num_steps=10_000,
            thin=10,
            progress=False,
        )
        # The chains see the same batches: what they have in common varies over time only.
        assert np.isclose(np.mean(posterior.particles[1000:] ** 2), expected, rtol=0.1)
