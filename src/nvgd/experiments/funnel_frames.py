"""Frames of an animation: particles on the two-dimensional funnel and the learned field."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nvgd.evaluation.curved_densities import Funnel
from nvgd.flow.particle_flow import FlowState
from nvgd.stein.witnesses import Witness

# The target is shown down to this many nats below its maximum.
DEPTH = 10


class Frame(NamedTuple):
    """One moment of the paper's NVGD, with its learned field at the particles and on a grid."""

    step: int
    particles: np.ndarray
    particle_arrows: np.ndarray
    grid_arrows: np.ndarray


@functools.cache
def arrow_grid() -> Float[Array, "k 2"]:
    """Grid points where the target has mass: elsewhere the witness only extrapolates."""
    across, up = np.meshgrid(np.linspace(-12, 12, 21), np.linspace(-8.5, 8, 18))
    points = jnp.asarray(np.stack([up.ravel(), across.ravel()], axis=1))
    values = jax.vmap(Funnel(2).log_density)(points)
    return points[values > values.max() - DEPTH]


def take_frame(state: FlowState) -> Frame:
    """A frame of a state of `NVGD.paper()`."""
    witness = state.direction.witness
    shots = (state.particles, _field(witness, state.particles), _field(witness, arrow_grid()))
    return Frame(int(state.step), *(np.asarray(shot) for shot in shots))


@eqx.filter_jit
def _field(witness: Witness, points: Float[Array, "k d"]) -> Float[Array, "k d"]:
    return jax.vmap(witness)(points)
