"""Flows that keep the target exactly, for a finish, or from the start."""

from typing import Any

from numpy.typing import ArrayLike

from nvgd.coordinates import Identity, Preconditioned
from nvgd.directions import Halves, LangevinDirection, LangevinFraction, NeuralDirection
from nvgd.flow import ParticleFlow
from nvgd.methods import build_direction
from nvgd.movers import Euler, Metropolis, StepSize


class MALA(ParticleFlow):
    """The Metropolis-adjusted Langevin algorithm, n chains at a time.

    As a finish it takes what is left of a flow's bias away:

        posterior = sample(target, NVGD())
        finished = sample(target, MALA(0.1), initial=posterior.particles, num_steps=200)

    Arguments:
        step_size: ε; lower it if `history["acceptance"]` is below .5.
        matrix: a constant preconditioner, such as the particles' covariance before the finish; a
            vector stands for a diagonal.
    """

    def __init__(self, step_size: StepSize, *, matrix: ArrayLike | None = None):
        self.coordinates = Identity() if matrix is None else Preconditioned(matrix)
        self.direction = LangevinDirection()
        self.mover = Metropolis(Euler(step_size))


class MetropolisNVGD(ParticleFlow):
    """NVGD whose moves are accepted or rejected: a field learned from one half moves the other.

        x' = x + ε[(1 − τ) f_A(x) + τ ∇log p(x)] + √(2ετ) ξ for x in B, then A and B change places

    Arguments:
        step_size: ε.
        fraction: τ, the share of noise; a proposal needs some.
        warmup: steps during which the network goes on from its last weights; exact afterwards.
        matrix: a constant preconditioner; a vector stands for a diagonal.
        options: those of `NeuralDirection`.
    """

    def __init__(
        self,
        step_size: StepSize,
        *,
        fraction: float = 0.5,
        warmup: int = 0,
        matrix: ArrayLike | None = None,
        **options: Any,
    ):
        self.coordinates = Identity() if matrix is None else Preconditioned(matrix)
        inner = build_direction("MetropolisNVGD", NeuralDirection, options)
        self.direction = Halves(LangevinFraction(inner, fraction), warmup)
        self.mover = Metropolis(Euler(step_size))
