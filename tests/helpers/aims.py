"""Aims by hand, for movers that are tested alone."""

import jax.numpy as jnp

import nvgd
from nvgd.flow.aim import Aim, TargetView
from nvgd.flow.coordinates.base import Identity


def aim_of(particles, velocities, log_densities=None, *, noise_share=0.0, is_noisy=False):
    """What a mover is given, on a standard normal target, in the coordinates x."""
    num_particles, dim = particles.shape
    if log_densities is None:
        log_densities = jnp.zeros(num_particles)
    data = {}
    if is_noisy:
        data = {
            "log_likelihood": lambda x, row: -0.5 * jnp.sum((row - x) ** 2),
            "data": jnp.zeros((4, dim)),
            "batch_size": 2,
        }
    target = nvgd.Target(lambda x: -0.5 * x @ x, dim=dim, **data)
    frame = Identity().fit(particles, particles, None)
    return Aim(
        particles,
        velocities,
        noise_share,
        log_densities,
        jnp.isfinite(log_densities),
        None,
        frame,
        TargetView.of(target, None, frame),
    )
