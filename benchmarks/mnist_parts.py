"""The default with one part removed, on a network of 4594 parameters in minibatches.

python -m benchmarks.mnist_parts [--seeds K] [--num-particles N] [--num-steps N] [--resume]
"""

import argparse
import dataclasses
from pathlib import Path
from typing import ClassVar

import nvgd
from benchmarks.posteriors.ablations import FLOWS
from nvgd._support.errors import InputError
from nvgd.directions import AbstractDirection, Capabilities, Fit, TargetView
from nvgd.experiments.base import reproduce
from nvgd.experiments.methods import DEFAULT
from nvgd.experiments.mnist import Mnist
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.movers import AbstractMover
from nvgd.posterior.palette import NVGD, tint


class ScoreAlone(AbstractDirection[None]):
    """∇log p without repulsion, network or noise: every particle climbs to a mode."""

    def init(self, particles, *, key):
        """Nothing to remember."""
        del particles, key

    def fit(self, particles, scores, state, *, view, key):
        """The score."""
        del particles, state, view, key
        return Fit(scores, None, None, {})

    @property
    def capabilities(self):
        """Particles do not interact, and no noise is added."""
        return Capabilities(depends_on="itself")


class CappedByEnsemble(nvgd.movers.Capped):
    """Caps from the velocities of all particles, as without minibatches, instead of Adam's."""

    def __call__(self, aim, state, *, step, key):
        """A capped step for scores without noise."""
        view = TargetView.hidden(is_noisy=False)
        return super().__call__(aim._replace(view=view), state, step=step, key=key)


def _with(
    direction: AbstractDirection | None = None, mover: AbstractMover | None = None
) -> ParticleFlow:
    default = nvgd.NVGD()
    return ParticleFlow(default.coordinates, direction or default.direction, mover or default.mover)


FORMS: dict[str, ParticleFlow] = {
    DEFAULT: nvgd.NVGD(),
    "without the network": FLOWS["without_network"],
    "without repulsion and network": _with(direction=ScoreAlone()),
    "without coordinates": FLOWS["without_coordinates"],
    "caps of the ensemble": _with(mover=nvgd.movers.Reborn(CappedByEnsemble())),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MnistParts(Mnist):
    """The forms above on a smaller scale than `nvgd reproduce mnist`, for one epoch."""

    num_particles: int = 40
    num_steps: int = 420
    seeds: int = 2

    name: ClassVar[str] = "mnist-parts"
    methods: ClassVar[tuple[str, ...]] = tuple(FORMS)
    untuned: ClassVar[tuple[str, ...]] = tuple(FORMS)
    colours: ClassVar[dict[str, str]] = dict(
        zip(FORMS, (tint(NVGD, share) for share in (0.0, 0.35, 0.6, -0.35, -0.6)), strict=True)
    )

    def flow(self, method: str, step_size: float | None) -> ParticleFlow:
        """One of the forms."""
        del step_size
        return FORMS[method]


def main() -> None:
    """Run what is missing in the records, print the table, draw the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mnist_parts", description=__doc__)
    parser.add_argument("--seeds", type=int, default=MnistParts.seeds, metavar="K")
    parser.add_argument("--num-particles", type=int, default=MnistParts.num_particles, metavar="N")
    parser.add_argument("--num-steps", type=int, default=MnistParts.num_steps, metavar="N")
    parser.add_argument("--out", type=Path, metavar="DIR")
    parser.add_argument("--data-dir", type=Path, metavar="DIR")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
    try:
        reproduce(MnistParts(**vars(parser.parse_args())))
    except InputError as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
