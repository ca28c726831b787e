"""The named methods: flows of parts that belong together."""

import dataclasses
from typing import Any, TypeVar

import optax

from nvgd.coordinates import AbstractCoordinates, Adaptive, Identity
from nvgd.directions import (
    AbstractDirection,
    KernelDirection,
    LangevinDirection,
    NeuralDirection,
    ResidualDirection,
)
from nvgd.errors import InputError
from nvgd.flow import ParticleFlow
from nvgd.movers import Capped, Euler, StepSize, choose_mover


class NVGD(ParticleFlow):
    """Neural variational gradient descent, with nothing to tune.

    The particles move in coordinates learned from them and their scores (`Adaptive`), along the
    score plus a normal repulsion plus a network trained on the fly (`ResidualDirection`), by steps
    in units of their own spread (`Capped`). `NVGD.paper()` is the paper's Algorithm 1.

    Arguments:
        step_size: ε; 0.1 if neither it nor `optimizer` is given.
        optimizer: an `optax` transformation that moves the particles instead.
        coordinates: in which the witness sees the particles.
        corrected: whether runs of 500 steps or more end with steps that are accepted or rejected
            (`nvgd.corrections`): all but the first 400, or 20 %; not with minibatches.
        options: those of `NeuralDirection`: `witness`, `learning_rate`, `patience` and so on.
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
            "max_inner_steps": 10,
            "patience": 10,
        }
        trainer = build_direction(
            "NVGD", NeuralDirection, {**settings, **options}, also="corrected, "
        )
        self.direction = ResidualDirection(trainer)
        if step_size is None and optimizer is None:
            self.mover = Capped()
        elif optimizer is None:
            self.mover = Capped(step_size)
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
        """Algorithm 1 of the paper: x as it is, the whole field learned, plain steps.

        Arguments:
            step_size: ε, a number or schedule; 0.01 if neither it nor `optimizer` is given.
            optimizer, coordinates, options: as for `NVGD`.
        """
        return PaperNVGD(step_size, optimizer=optimizer, coordinates=coordinates, **options)


class PaperNVGD(ParticleFlow):
    """What `NVGD.paper` builds."""

    def __init__(
        self,
        step_size: StepSize | None,
        *,
        optimizer: optax.GradientTransformation | None,
        coordinates: AbstractCoordinates,
        **options: Any,
    ):
        self.coordinates = coordinates
        self.direction = build_direction("NVGD.paper", NeuralDirection, options)
        self.mover = choose_mover(step_size, optimizer, default_step_size=1e-2)


class SVGD(ParticleFlow):
    """Stein variational gradient descent.

    Arguments:
        step_size: ε, a number or schedule; 0.05 if neither it nor `optimizer` is given.
        optimizer: an `optax` transformation that moves the particles instead.
        coordinates: in which the kernel sees the particles.
        options: those of `KernelDirection`: `kernel` and `rescale`.
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
        self.direction = build_direction("SVGD", KernelDirection, options)
        self.mover = choose_mover(step_size, optimizer, default_step_size=5e-2)


class ULA(ParticleFlow):
    """The unadjusted Langevin algorithm: x ← x + ε∇log p(x) + √(2ε) ξ.

    With n particles it is the paper's parallel ULA. Sequential ULA is one particle of which every
    k-th position is kept: `sample(target, ULA(), num_particles=1, thin=k)`.

    Arguments:
        step_size: ε, a number or schedule.
    """

    def __init__(self, step_size: StepSize = 1e-2):
        self.coordinates = Identity()
        self.direction = LangevinDirection()
        self.mover = Euler(step_size)


class SGLD(ParticleFlow):
    """Stochastic gradient Langevin dynamics: ULA on a target that is seen in minibatches.

    Arguments:
        step_size: ε, a number or a schedule such as `polynomial_decay(1e-5)`. No default: a good
            value is in proportion to one over the number of data rows.
    """

    def __init__(self, step_size: StepSize):
        self.coordinates = Identity()
        self.direction = LangevinDirection()
        self.mover = Euler(step_size)


Kind = TypeVar("Kind", bound=AbstractDirection)


def build_direction(
    method: str, kind: type[Kind], options: dict[str, Any], *, also: str = ""
) -> Kind:
    """A direction from the options of a method; an unknown one is named.

    Arguments:
        also: what the method accepts beyond steps, coordinates and these options.
    """
    accepted = [field.name for field in dataclasses.fields(kind)]
    unknown = [name for name in options if name not in accepted]
    if unknown:
        raise InputError(
            f"{method} has no option {', '.join(unknown)}; it accepts step_size, optimizer, "
            f"coordinates, {also}{', '.join(accepted)}."
        )
    return kind(**options)
