"""Training of the scikit-learn estimators: one run, or rounds with early stopping."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nvgd.flow.methods import NVGD
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.posterior.posterior import Posterior
from nvgd.running.sampling import sample
from nvgd.targets.target import Target


# Functions of this module, because those of JAX cannot be pickled.
def _relu(values: Array) -> Array:
    return jax.nn.relu(values)


def _tanh(values: Array) -> Array:
    return jnp.tanh(values)


def _swish(values: Array) -> Array:
    return jax.nn.swish(values)


def _gelu(values: Array) -> Array:
    return jax.nn.gelu(values)


ACTIVATIONS = {"relu": _relu, "tanh": _tanh, "swish": _swish, "gelu": _gelu}
# Rounds of a run with early stopping.
NUM_ROUNDS = 5
# Batches per pass over the rows, and bounds of the batch size. Fewer rows are used all at once.
BATCHES_PER_EPOCH, SMALLEST_BATCH, LARGEST_BATCH = 8, 16, 128


class Settings(NamedTuple):
    """How to train; the fields are those of the estimators."""

    num_particles: int
    batch_size: int | str | None
    max_steps: int
    validation_fraction: float | None
    """None for no early stopping."""
    patience: int
    flow: ParticleFlow | None
    progress: bool
    seed: int


class Trained(NamedTuple):
    """The posterior that was kept, the scores of all rounds, and the number of steps taken."""

    posterior: Posterior
    validation_scores: list[float]
    num_steps: int


def network_of(
    num_inputs: int, hidden: tuple[int, ...], num_outputs: int, activation: str
) -> eqx.nn.Sequential:
    """A fully connected network."""
    sizes = (num_inputs, *hidden, num_outputs)
    layers: list[Any] = []
    for before, after in itertools.pairwise(sizes):
        layers += [eqx.nn.Linear(before, after, key=jax.random.key(0))]
        layers += [eqx.nn.Lambda(ACTIVATIONS[activation])]
    return eqx.nn.Sequential(layers[:-1])


def train(
    make_target: Callable[[np.ndarray, np.ndarray, int | None], Target],
    x: np.ndarray,
    y: np.ndarray,
    settings: Settings,
) -> Trained:
    """Sample the posterior of a target that `make_target(x, y, batch_size)` builds."""
    if settings.validation_fraction is None:
        target = make_target(x, y, _batch_size(settings.batch_size, len(x)))
        posterior = _sample(target, settings, settings.max_steps, None, settings.seed)
        return Trained(posterior, [], posterior.num_steps)
    order = np.random.default_rng(settings.seed).permutation(len(x))
    num_held_out = max(round(settings.validation_fraction * len(x)), 1)
    held_out, rest = order[:num_held_out], order[num_held_out:]
    target = make_target(x[rest], y[rest], _batch_size(settings.batch_size, len(rest)))
    best, posterior, scores, num_steps = None, None, [], 0
    length = max(settings.max_steps // NUM_ROUNDS, 1)
    while num_steps < settings.max_steps:
        particles = None if posterior is None else posterior.particles
        seed = (settings.seed + len(scores)) % 2**32
        length = min(length, settings.max_steps - num_steps)
        posterior = _sample(target, settings, length, particles, seed)
        num_steps += posterior.num_steps
        prediction = posterior.predict(x[held_out], y=y[held_out], quantiles=(), samples=False)
        scores.append(float(np.mean(prediction.log_likelihood)))
        if best is None or scores[-1] >= max(scores):
            best = posterior
        if not posterior.completed or len(scores) - 1 - int(np.argmax(scores)) >= settings.patience:
            break
    assert best is not None
    return Trained(best, scores, num_steps)


def _batch_size(given: int | str | None, num_rows: int) -> int | None:
    if given != "auto":
        # A batch of all rows is not a minibatch.
        return given if isinstance(given, int) and given < num_rows else None
    size = int(np.clip(num_rows // BATCHES_PER_EPOCH, SMALLEST_BATCH, LARGEST_BATCH))
    return size if size < num_rows else None


def _sample(
    target: Target, settings: Settings, num_steps: int, particles: Any, seed: int
) -> Posterior:
    return sample(
        target,
        # Corrections of many networks on all rows take long and gain little in predictions.
        NVGD(corrected=False) if settings.flow is None else settings.flow,
        num_particles=settings.num_particles if particles is None else None,
        num_steps=num_steps,
        initial=particles,
        seed=seed,
        progress=settings.progress,
    )
