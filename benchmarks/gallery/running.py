"""Runs of the three methods on one target, recorded as films."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nvgd
from benchmarks.gallery.targets import Shown
from nvgd.evaluation.distances import Reference
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.flow.stage import StageState

NVGD, SVGD, LANGEVIN = "NVGD", "SVGD", "Langevin"
# NVGD has nothing to tune; of the others the best of these step sizes is shown.
FLOWS: dict[str, list[Callable[[], ParticleFlow]]] = {
    NVGD: [nvgd.NVGD],
    SVGD: [lambda e=e: nvgd.SVGD(e, rescale=True) for e in (0.02, 0.05, 0.1, 0.3)],
    LANGEVIN: [lambda e=e: nvgd.ULA(e) for e in (0.003, 0.01, 0.03, 0.1)],
}
NUM_REFERENCE_DRAWS = 5000
NUM_EXACT_SAMPLES = 20
MAX_FRAMES = 60


class Film(NamedTuple):
    """Frames of one run, of which the last shows the returned particles."""

    steps: list[int]
    positions: np.ndarray
    stages: list[str]
    energy: np.ndarray
    """Energy distance of every frame from the target."""


def exact_level(shown: Shown, num_particles: int) -> float:
    """Mean energy distance of independent exact samples of this size."""
    reference = _reference(shown)
    draws = (
        shown.density.sample(jax.random.key(100 + i), num_particles)
        for i in range(NUM_EXACT_SAMPLES)
    )
    return float(np.mean([reference.energy_distance(x) for x in draws]))


def best_film(
    shown: Shown, method: str, *, num_particles: int, num_steps: int, seed: int = 0
) -> Film:
    """The run of the step size that ends nearest to the target, of those that do not diverge."""
    films = [_run(shown, flow(), num_particles, num_steps, seed) for flow in FLOWS[method]]
    completed = [film for film in films if film.steps[-1] == num_steps]
    return min(completed, key=lambda film: film.energy[-1])


def _reference(shown: Shown) -> Reference:
    return Reference(shown.density.sample(jax.random.key(1), NUM_REFERENCE_DRAWS))


def _run(shown: Shown, flow: ParticleFlow, num_particles: int, num_steps: int, seed: int) -> Film:
    states: dict[int, np.ndarray] = {}

    def record(state: StageState) -> None:
        states[int(state.step)] = np.asarray(state.particles)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nvgd.RunStoppedWarning)
        posterior = nvgd.sample(
            shown.density.log_density,
            flow,
            dim=2,
            num_particles=num_particles,
            num_steps=num_steps,
            seed=seed,
            callback=record,
            metrics_every=max(num_steps // 200, 1),
            progress=False,
        )
    states[posterior.num_steps] = np.asarray(posterior.particles)
    recorded = sorted(states)
    # More frames from the start, where most happens.
    places = (len(recorded) - 1) * np.linspace(0, 1, MAX_FRAMES) ** 2
    steps = [recorded[int(i)] for i in np.unique(places.round())]
    positions = np.stack([states[step] for step in steps])
    ends = [(stage.until_step, stage.kind) for stage in posterior.stages]
    stages = [next((kind for end, kind in ends if step <= end), ends[-1][1]) for step in steps]
    if len({kind for _, kind in ends}) > 1:
        stages[-1] = "returned"
    else:
        stages = [""] * len(steps)
    reference = _reference(shown)
    energy = np.array([float(reference.energy_distance(jnp.asarray(x))) for x in positions])
    return Film(steps, positions, stages, energy)
