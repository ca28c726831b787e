"""Self-repulsion: particles are repelled from their own past positions."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from nvgd._support.errors import InputError, check_count, check_kind, check_positive, plain
from nvgd.flow.directions.base import AbstractDirection
from nvgd.flow.directions.kernel import Kernel
from nvgd.flow.directions.wrapper import AbstractWrapper
from nvgd.stein.kernels import RBF, AbstractKernel


class SelfRepulsiveState(NamedTuple):
    """State of the inner direction, and ring buffers of past positions and their scores."""

    direction: PyTree
    positions: Float[Array, "n k d"]
    scores: Float[Array, "n k d"]
    step: Int[Array, ""]


class SelfRepulsive(AbstractWrapper[SelfRepulsiveState]):
    """Adds to each particle's velocity the Stein field of its own past positions.

        v(x) = f(x) + α (1/m) Σⱼ k(yⱼ, x) ∇log p(yⱼ) + ∇_{yⱼ} k(yⱼ, x)

    yⱼ are m past positions of this particle, stored every `every` steps. If they are distributed
    as p, the added term vanishes by Stein's identity. The target is kept, but a chain is driven
    away from its past positions, and successive states are less correlated. From Stein
    self-repulsive dynamics (Ye et al., 2020), where f is Langevin's. Not Markovian: the memory is
    part of the state. The term is zero until the memory is full.

    Arguments:
        direction: f, usually `Langevin()`.
        strength: α.
        memory: m, the number of past positions per particle.
        every: number of steps between two stored positions.
        kernel: k. Its bandwidth must be a number, because a few positions do not determine one.

    Examples:
        >>> direction = nvgd.directions.SelfRepulsive(nvgd.directions.Langevin(), memory=10)
    """

    direction: AbstractDirection
    strength: float = eqx.field(default=10.0, converter=plain)
    memory: int = eqx.field(default=10, converter=plain)
    every: int = eqx.field(default=20, converter=plain)
    kernel: AbstractKernel = RBF(1.0)

    def __check_init__(self):
        self.check_inner()
        check_positive("strength", self.strength, zero_allowed=True)
        check_count("memory", self.memory)
        check_count("every", self.every)
        check_kind("kernel", self.kernel, AbstractKernel, "RBF(1.0)")
        if isinstance(self.kernel.bandwidth, str):
            raise InputError(
                "the kernel of SelfRepulsive sees few positions at a time: give its bandwidth as "
                'a number, not "median".'
            )

    def init(self, particles, *, key):
        """An empty memory."""
        num_particles, dim = particles.shape
        empty = jnp.zeros((num_particles, self.memory, dim), particles.dtype)
        return SelfRepulsiveState(
            self.direction.init(particles, key=key), empty, empty, jnp.array(0)
        )

    def fit(self, particles, scores, state, *, view, key):
        """The inner direction's velocities plus the repulsion from past positions."""
        fit = self.direction.fit(particles, scores, state.direction, view=view, key=key)
        stein = Kernel(self.kernel)

        def push(x: Array, positions: Array, scores: Array) -> Array:
            return stein.witness(positions, scores)(x)

        pushes = jax.vmap(push)(particles, state.positions, state.scores)
        is_full = state.step >= self.memory * self.every
        velocities = fit.velocities + jnp.where(is_full, self.strength, 0.0) * pushes

        slot = (state.step // self.every) % self.memory
        is_due = state.step % self.every == 0
        positions, past_scores = (
            jnp.where(is_due, kept.at[:, slot].set(new), kept)
            for kept, new in ((state.positions, particles), (state.scores, scores))
        )
        memory = SelfRepulsiveState(fit.state, positions, past_scores, state.step + 1)
        return fit._replace(velocities=velocities, field=None, state=memory, without_repulsion=None)

    @property
    def capabilities(self):
        """No common field, because each particle has its own past."""
        return self.direction.capabilities._replace(has_field=False, depends_on="past")

    def check_coordinates(self, coordinates):
        """Accept fixed coordinates only, because past positions are stored in them."""
        if coordinates.frame_kind != "fixed":
            raise InputError(
                f"SelfRepulsive remembers positions, which {type(coordinates).__name__} "
                "coordinates would express differently in every step: use Identity() or "
                "Preconditioned(matrix)."
            )
        self.direction.check_coordinates(coordinates)
