import jax
import jax.numpy as jnp
import numpy as np

import nvgd


def move(mover, particles, velocities, log_densities=None, step=0):
    if log_densities is None:
        log_densities = jnp.zeros(len(particles))
    moved, _ = mover(
        particles,
        velocities,
        0.0,
        mover.init(particles),
        log_densities=log_densities,
        step=jnp.array(step),
        key=jax.random.key(0),
    )
    return moved


def test_a_capped_step_is_plain_where_it_is_short_and_of_one_length_where_it_is_not():
    velocities = jnp.stack([jnp.full(4, value) for value in (0.5, -1e6, 0.0, 0.0, 0.0)])
    moved = move(nvgd.Capped(0.1, 0.2), jnp.zeros((5, 4)), velocities)
    assert np.allclose(moved[:3, 0], [0.05, -0.2, 0.0])


def test_particles_that_all_go_the_same_way_go_further():
    moved = move(nvgd.Capped(0.1, 0.2), jnp.zeros((5, 4)), jnp.full((5, 4), 1e6))
    assert np.allclose(moved, 0.6)


def test_capped_steps_fall_to_a_tenth_over_the_second_half_of_a_run():
    mover = nvgd.Capped(0.1, 10.0).for_run(100)
    sizes = [
        float(move(mover, jnp.zeros((1, 1)), jnp.ones((1, 1)), step=k)[0, 0])
        for k in (
            0,
            50,
            75,
            100,
        )
    ]
    assert np.allclose(sizes, [0.1, 0.1, 0.1 * 10**-0.5, 0.01])


def test_stranded_particles_are_reborn_beside_good_ones_and_only_when_it_is_time():
    particles = jax.random.normal(jax.random.key(1), (50, 2)).at[0].set(1e4)
    log_densities = -0.5 * jnp.sum(particles**2, axis=1)
    mover = nvgd.Capped(rebirth_every=20).for_run(1000)
    still = jnp.zeros_like(particles)
    waiting = move(mover, particles, still, log_densities, step=18)
    assert np.allclose(waiting, particles)
    reborn = move(mover, particles, still, log_densities, step=19)
    assert jnp.linalg.norm(reborn[0]) < 10
    assert np.allclose(reborn[1:], particles[1:])
    late = move(mover, particles, still, log_densities, step=719)
    assert np.allclose(late, particles)
