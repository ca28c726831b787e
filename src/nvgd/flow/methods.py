"""The named methods: NVGD, SVGD, ULA, SGLD and MALA, each a `ParticleFlow` of matching parts."""

import dataclasses
from typing import Any, TypeVar

import optax
from numpy.typing import ArrayLike

from nvgd._support.errors import InputError
from nvgd.flow.coordinates.adaptive import Adaptive
from nvgd.flow.coordinates.base import AbstractCoordinates, Identity
from nvgd.flow.coordinates.preconditioners import Preconditioned
from nvgd.flow.directions.base import AbstractDirection
from nvgd.flow.directions.fraction import LangevinFraction
from nvgd.flow.directions.halves import Halves
from nvgd.flow.directions.kernel import Kernel
from nvgd.flow.directions.langevin import Langevin
from nvgd.flow.directions.neural import Neural
from nvgd.flow.directions.residual import Residual
from nvgd.flow.movers.capped import Capped
from nvgd.flow.movers.metropolis import Metropolis
from nvgd.flow.movers.plain import Euler, StepSize, choose_mover
from nvgd.flow.movers.reborn import Reborn
from nvgd.flow.particle_flow import ParticleFlow


class NVGD(ParticleFlow):
    """Neural variational gradient descent, with defaults that need no tuning.

    The particles move in coordinates learned from particles and scores (`Adaptive`). Velocities are
    the score plus a normal repulsion plus a network trained during the run (`Residual`). Steps are
    in units of the particles' spread (`Capped`), and stranded particles are reborn (`Reborn`).
    `NVGD.paper()` is Algorithm 1 of the paper.

    Arguments:
        step_size: ε; 0.1 if neither `step_size` nor `optimizer` is given.
        optimizer: an `optax` transformation that moves the particles, in place of `Capped` and
            `Reborn`.
        coordinates: the coordinates in which the network sees the particles.
        corrected: whether a run ends with Metropolis-corrected steps, after 400 steps of the flow
            or 20 % of `num_steps`, whichever is more. On all data, the flow ends after 200 steps if
            it is at rest by then. Runs of fewer than 500 steps (400 on all data), and minibatches
            with more than 300 parameters, have no corrections.
        options: options of `directions.Neural`: `witness`, `learning_rate`, `patience` and so on.

    Examples:
        >>> banana = nvgd.densities.Banana()
        >>> posterior = nvgd.sample(banana.log_density, nvgd.NVGD(), dim=2)
        >>> posterior.diagnose().verdict
        'converged'
    """

    def __init__(
        self,
        step_size: float | None = None,
        *,
        optimizer: optax.GradientTransformation | None = None,
        coordinates: AbstractCoordinates = Adaptive(),
        corrected: bool = True,
        **options: Any,
    ):
        self.coordinates = coordinates
        self.corrected = corrected
        settings = {
            "width": 64,
            "learning_rate": 1e-3,
            "max_inner_steps": 5,
            "patience": 10,
        }
        trainer = build_direction("NVGD", Neural, {**settings, **options}, also="corrected, ")
        self.direction = Residual(trainer)
        if optimizer is None:
            self.mover = Reborn(Capped() if step_size is None else Capped(step_size))
        else:
            self.mover = choose_mover(step_size, optimizer, default_step_size=1e-2)

    @staticmethod
    def paper(
        step_size: StepSize | None = None,
        *,
        optimizer: optax.GradientTransformation | None = None,
        coordinates: AbstractCoordinates = Identity(),
        **options: Any,
    ) -> "PaperNVGD":
        """Algorithm 1 of the paper: original coordinates, one network for the field, Euler steps.

        Arguments:
            step_size: ε, a number or schedule; 0.01 if neither `step_size` nor `optimizer` is
                given.
            optimizer: an `optax` transformation that moves the particles, in place of Euler steps.
            coordinates, options: as for `NVGD`.

        Examples:
            >>> funnel = nvgd.densities.Funnel(2)
            >>> flow = nvgd.NVGD.paper(0.05, learning_rate=1e-3)
            >>> posterior = nvgd.sample(funnel.log_density, flow, dim=2, num_steps=20)
            >>> posterior.particles.shape
            (256, 2)
        """
        return PaperNVGD(step_size, optimizer=optimizer, coordinates=coordinates, **options)

    @staticmethod
    def metropolis(
        step_size: StepSize,
        *,
        fraction: float = 0.5,
        warmup: int = 0,
        matrix: ArrayLike | None = None,
        **options: Any,
    ) -> "MetropolisNVGD":
        """Metropolis-adjusted NVGD: a field trained on half of the particles moves the other half.

            x' = x + ε[(1 − τ) f_A(x) + τ ∇log p(x)] + √(2ετ) ξ   for x in B

        A and B are the two halves; they swap roles after every step.

        Arguments:
            step_size: ε.
            fraction: τ, the share of noise, greater than zero.
            warmup: number of initial steps during which the network keeps its weights between
                steps; the target is left invariant only afterwards.
            matrix: a constant preconditioner; a vector gives a diagonal matrix.
            options: options of `directions.Neural`.

        Examples:
            >>> flow = nvgd.NVGD.metropolis(0.1, fraction=0.3, warmup=100)
        """
        return MetropolisNVGD(step_size, fraction=fraction, warmup=warmup, matrix=matrix, **options)


class PaperNVGD(ParticleFlow):
    """The flow built by `NVGD.paper`."""

    def __init__(
        self,
        step_size: StepSize | None,
        *,
        optimizer: optax.GradientTransformation | None,
        coordinates: AbstractCoordinates,
        **options: Any,
    ):
        self.coordinates = coordinates
        self.direction = build_direction("NVGD.paper", Neural, options)
        self.mover = choose_mover(step_size, optimizer, default_step_size=1e-2)


class MetropolisNVGD(ParticleFlow):
    """The flow built by `NVGD.metropolis`."""

    def __init__(
        self,
        step_size: StepSize,
        *,
        fraction: float,
        warmup: int,
        matrix: ArrayLike | None,
        **options: Any,
    ):
        self.coordinates = _given_coordinates(matrix)
        inner = build_direction("NVGD.metropolis", Neural, options)
        self.direction = Halves(LangevinFraction(inner, fraction), warmup)
        self.mover = Metropolis(Euler(step_size))


class SVGD(ParticleFlow):
    """Stein variational gradient descent.

    Arguments:
        step_size: ε, a number or schedule; 0.05 if neither `step_size` nor `optimizer` is given.
        optimizer: an `optax` transformation that moves the particles, in place of Euler steps.
        coordinates: the coordinates in which the kernel sees the particles.
        options: options of `directions.Kernel`: `kernel` and `rescale`.

    Examples:
        >>> ring = nvgd.densities.Ring()
        >>> posterior = nvgd.sample(ring.log_density, nvgd.SVGD(0.1), dim=2, num_steps=50)
        >>> posterior.particles.shape
        (256, 2)
    """

    def __init__(
        self,
        step_size: StepSize | None = None,
        *,
        optimizer: optax.GradientTransformation | None = None,
        coordinates: AbstractCoordinates = Identity(),
        **options: Any,
    ):
        self.coordinates = coordinates
        self.direction = build_direction("SVGD", Kernel, options)
        self.mover = choose_mover(step_size, optimizer, default_step_size=5e-2)


class ULA(ParticleFlow):
    """The unadjusted Langevin algorithm: x ← x + ε∇log p(x) + √(2ε) ξ.

    With n particles this is the paper's parallel ULA. Sequential ULA runs one particle and keeps
    every k-th position: `sample(target, ULA(), num_particles=1, thin=k)`.

    Arguments:
        step_size: ε, a number or schedule.

    Examples:
        >>> banana = nvgd.densities.Banana()
        >>> posterior = nvgd.sample(banana.log_density, nvgd.ULA(0.02), dim=2, num_steps=200)
        >>> posterior.completed
        True
    """

    def __init__(self, step_size: StepSize = 1e-2):
        self.coordinates = Identity()
        self.direction = Langevin()
        self.mover = Euler(step_size)


class SGLD(ParticleFlow):
    """Stochastic gradient Langevin dynamics: ULA with scores estimated from minibatches.

    Arguments:
        step_size: ε, a number or a schedule such as `polynomial_decay(1e-5)`. No default: a good
            value is inversely proportional to the number of data rows.

    Examples:
        >>> target = nvgd.Target(
        ...     lambda theta: -0.5 * jnp.sum(theta**2),
        ...     dim=1,
        ...     log_likelihood=lambda theta, value: -0.5 * (value - theta[0]) ** 2,
        ...     data=jnp.linspace(0.0, 2.0, 1000),
        ...     batch_size=50,
        ... )
        >>> posterior = nvgd.sample(target, nvgd.SGLD(1e-4), num_steps=500)
        >>> round(float(posterior.particles.mean()))
        1
    """

    def __init__(self, step_size: StepSize):
        self.coordinates = Identity()
        self.direction = Langevin()
        self.mover = Euler(step_size)


class MALA(ParticleFlow):
    """The Metropolis-adjusted Langevin algorithm, one chain per particle.

    Run after a flow, it removes the flow's remaining bias:

        posterior = sample(target, NVGD())
        finished = sample(target, MALA(0.1), initial=posterior.particles, num_steps=200)

    Arguments:
        step_size: ε; lower it if `history["acceptance"]` is below .5.
        matrix: a constant preconditioner, such as the covariance of the initial particles; a vector
            gives a diagonal matrix.

    Examples:
        >>> banana = nvgd.densities.Banana()
        >>> posterior = nvgd.sample(banana.log_density, nvgd.MALA(0.3), dim=2, num_steps=200)
        >>> bool(posterior.history["acceptance"][-1] > 0.5)
        True
    """

    def __init__(self, step_size: StepSize, *, matrix: ArrayLike | None = None):
        self.coordinates = _given_coordinates(matrix)
        self.direction = Langevin()
        self.mover = Metropolis(Euler(step_size))


def _given_coordinates(matrix: ArrayLike | None) -> AbstractCoordinates:
    return Identity() if matrix is None else Preconditioned(matrix)


Kind = TypeVar("Kind", bound=AbstractDirection)


def build_direction(
    method: str, kind: type[Kind], options: dict[str, Any], *, also: str = ""
) -> Kind:
    """Build a direction from the options of a method; unknown options raise an `InputError`.

    Arguments:
        also: further arguments of the method, for the error message.
    """
    accepted = [field.name for field in dataclasses.fields(kind)]
    unknown = [name for name in options if name not in accepted]
    if unknown:
        raise InputError(
            f"{method} has no option {', '.join(unknown)}; it accepts step_size, optimizer, "
            f"coordinates, {also}{', '.join(accepted)}."
        )
    return kind(**options)
