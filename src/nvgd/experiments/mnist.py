"""Figure 7: a Bayesian convolutional network on MNIST."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd.errors import check_count
from nvgd.experiments import datasets
from nvgd.experiments.base import DEFAULT, PAPER, Arrays, Rows, run_label
from nvgd.experiments.classification import (
    MEASURES,
    ClassificationExperiment,
    Split,
    methods_run,
)
from nvgd.experiments.funnel import paper_nvgd
from nvgd.experiments.network import (
    CLASSES,
    NUM_PARAMETERS,
    PRIOR_SCALE,
    log_likelihood,
    log_prior,
    logits,
    patches,
)
from nvgd.files import write_atomically
from nvgd.flow import ParticleFlow
from nvgd.methods import NVGD, SGLD, SVGD
from nvgd.tables import markdown
from nvgd.target import Target


class Data(NamedTuple):
    """Training images without and with the validation tenth, which comes first, and test images."""

    images: np.ndarray
    labels: np.ndarray
    num_validation: int
    test: Split


UNIT_ADAM = optax.adam(1.0)


def adam(step_size: float) -> optax.GradientTransformation:
    """Adam with its step size as an argument of its program, which all step sizes then share."""
    size = jnp.asarray(step_size)
    return optax.GradientTransformation(UNIT_ADAM.init, jax.tree_util.Partial(_update, size))


def _update(size: Array, updates: Any, state: Any, parameters: Any = None) -> tuple[Any, Any]:
    updates, state = UNIT_ADAM.update(updates, state, parameters)
    return size * updates, state


@functools.lru_cache(maxsize=1)
def load(data_dir: Path | None) -> Data:
    """MNIST, the training part shuffled once."""
    raw = datasets.load("mnist", data_dir)
    order = np.random.default_rng(0).permutation(len(raw["train_images"]))
    test = Split(raw["test_images"], raw["test_labels"].astype(int))
    images, labels = raw["train_images"][order], raw["train_labels"][order]
    return Data(images, labels, len(images) // 10, test)


@functools.lru_cache(maxsize=1)
def _target(data_dir: Path | None, batch_size: int) -> Target:
    data = load(data_dir)
    rows = slice(data.num_validation, None)
    return Target(
        log_prior,
        dim=NUM_PARAMETERS,
        log_likelihood=log_likelihood,
        data=(data.images[rows], data.labels[rows]),
        batch_size=batch_size,
        vectorised=True,
        # One network's activations fit the cache of a core; more do not.
        particles_at_once=1,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mnist(ClassificationExperiment):
    """Figure 7: a Bayesian network with 4594 parameters, by NVGD, SVGD and SGLD."""

    seeds: int = 3
    """Independent runs of every method."""
    num_steps: int = 840
    """Steps of every method; 420 are an epoch of the training nine tenths."""
    tuning_steps: int = 100
    """Steps of every try of the search."""
    largest_step_size: float = 1e-1
    """The search's first decade; the others are smaller."""
    num_decades: int = 6
    """How many decades the search tries."""
    measure_every: int = 105
    """Steps between measurements."""
    max_inner_steps: int = 100
    """Training steps of the witness a particle step, at most."""
    patience: int = 5
    """Training steps without improvement before the witness's training stops."""
    num_test: int = 10_000
    """Test images to measure on."""

    name: ClassVar[str] = "mnist"
    quick_limits: ClassVar[dict[str, int]] = {
        "seeds": 1,
        "num_steps": 4,
        "tuning_steps": 2,
        "num_decades": 1,
        "measure_every": 2,
        "num_particles": 6,
        "max_inner_steps": 2,
        "num_test": 500,
    }
    methods: ClassVar[tuple[str, ...]] = (
        DEFAULT,
        PAPER,
        f"{PAPER} Adam",
        "SVGD",
        "SVGD Adam",
        "SGLD",
    )

    def __post_init__(self):
        super().__post_init__()
        check_count("patience", self.patience)
        check_count("num_test", self.num_test)

    def flow(self, method: str, step_size: float | None) -> ParticleFlow:
        """The default, or a method with this step size, plain or Adam's."""
        if step_size is None:
            return NVGD()
        if method == "SGLD":
            return SGLD(jnp.asarray(step_size))
        uses_adam = method.endswith("Adam")
        optimizer = adam(step_size) if uses_adam else None
        # An array, not a number: all step sizes then share one compiled program.
        plain = None if uses_adam else jnp.asarray(step_size)
        if method.startswith("SVGD"):
            return SVGD(plain, optimizer=optimizer)
        return paper_nvgd(
            plain,
            self.learning_rate,
            optimizer=optimizer,
            width=256,
            depth=3,
            max_inner_steps=self.max_inner_steps,
            patience=self.patience,
        )

    def target(self, *, tuning: bool) -> Target:
        """The posterior of nine tenths of the training images; the same for search and runs."""
        del tuning
        return _target(self.data_dir, self.batch_size)

    def split(self, *, tuning: bool) -> Split:
        """Test images, or the validation tenth."""
        data = load(self.data_dir)
        if tuning:
            images, labels = data.images, data.labels.astype(int)
            count = min(data.num_validation, self.num_test)
            return Split(images[:count], labels[:count])
        return Split(data.test.inputs[: self.num_test], data.test.labels[: self.num_test])

    def initial(self, key: PRNGKeyArray) -> Float[Array, "n d"]:
        """Draws from the prior."""
        return PRIOR_SCALE * jax.random.normal(key, (self.num_particles, NUM_PARAMETERS))

    def probabilities(self, particles, inputs):
        """Mean over networks of their class probabilities, in batches of images."""
        # More activations do not fit a core's cache.
        size = min(250, len(inputs))
        parts = [
            _mean_probabilities(particles, jnp.asarray(inputs[first : first + size]))
            for first in range(0, len(inputs), size)
        ]
        return np.concatenate([np.asarray(part) for part in parts])

    def can_show(self, rows: Rows) -> bool:
        """From the first run on: the slowest method takes most of the time."""
        return bool(methods_run(self, rows))

    def table(self, rows: Rows, arrays: Arrays) -> str:
        """All measures after a quarter, half and all of the steps, as far as they were measured."""
        del arrays
        lines = [["after", "", "runs", "step size", *MEASURES.values()]]
        measured = {row["step"] for row in rows if "step" in row}
        for step in (self.num_steps // 4, self.num_steps // 2, self.num_steps):
            if step not in measured:
                continue
            for method in methods_run(self, rows):
                runs = {row["task"] for row in rows if row["method"] == method and "step" in row}
                cells = self.measure_cells(rows, method, step)
                lines.append([f"{step} steps", run_label(rows, method), str(len(runs)), *cells])
        return markdown(lines)

    def draw(self, rows: Rows, arrays: Arrays, directory: Path) -> list[Path]:
        """All measures over steps."""
        del arrays
        import matplotlib.pyplot as plt

        from nvgd.experiments.figures import draw_measures

        figure, panels = plt.subplots(1, 3, figsize=(13, 3.9), layout="constrained")
        draw_measures(self, rows, panels, tuple(MEASURES))
        path = directory / "mnist.png"
        write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=130))
        plt.close(figure)
        return [path]


@eqx.filter_jit
def _mean_probabilities(particles: Array, images: Array) -> Array:
    shared = patches(images / 255.0)

    def add(total: Array, parameters: Array) -> tuple[Array, None]:
        return total + jax.nn.softmax(logits(parameters, shared)), None

    start = jnp.zeros((len(images), CLASSES), particles.dtype)
    total, _ = jax.lax.scan(add, start, particles)
    return total / len(particles)
