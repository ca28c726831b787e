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

from nvgd._support.errors import check_choice, check_count
from nvgd._support.tables import markdown
from nvgd.experiments import datasets
from nvgd.experiments.base import Arrays, run_label
from nvgd.experiments.classification import MEASURES, ClassificationExperiment, Split
from nvgd.experiments.figures import save_figure
from nvgd.experiments.methods import DEFAULT, PAPER, paper_nvgd
from nvgd.experiments.network import (
    CLASSES,
    NUM_PARAMETERS,
    SETTINGS,
    log_likelihood,
    log_prior,
    logits,
    patches,
)
from nvgd.experiments.records import Rows
from nvgd.flow.methods import NVGD, SGLD, SVGD
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.targets.target import Target


class Data(NamedTuple):
    """Training images and labels, of which the first tenth is for validation, and test images."""

    images: np.ndarray
    labels: np.ndarray
    num_validation: int
    test: Split


# Options of the witness behind the authors' stored results.
AUTHORS_WITNESS = {
    "standardise": True,
    "reinitialise": True,
    "dropout": 0.2,
    "learning_rate": 5e-3,
    "patience": 21,
    "train_fraction": 0.75,
    "restore_best": False,
}

UNIT_ADAM = optax.adam(1.0)


def adam(step_size: float) -> optax.GradientTransformation:
    """Adam whose step size is an array, so that all step sizes share one compiled program."""
    size = jnp.asarray(step_size)
    return optax.GradientTransformation(UNIT_ADAM.init, jax.tree_util.Partial(_update, size))


def _update(size: Array, updates: Any, state: Any, parameters: Any = None) -> tuple[Any, Any]:
    updates, state = UNIT_ADAM.update(updates, state, parameters)
    return size * updates, state


@functools.lru_cache(maxsize=1)
def load(data_dir: Path | None) -> Data:
    """MNIST, with the training images shuffled."""
    raw = datasets.load("mnist", data_dir)
    order = np.random.default_rng(0).permutation(len(raw["train_images"]))
    test = Split(raw["test_images"], raw["test_labels"].astype(int))
    images, labels = raw["train_images"][order], raw["train_labels"][order]
    return Data(images, labels, len(images) // 10, test)


@functools.lru_cache(maxsize=1)
def _target(data_dir: Path | None, batch_size: int, setting: str) -> Target:
    data = load(data_dir)
    rows = slice(data.num_validation, None)
    return Target(
        functools.partial(log_prior, SETTINGS[setting]),
        dim=NUM_PARAMETERS,
        log_likelihood=functools.partial(log_likelihood, SETTINGS[setting]),
        data=(data.images[rows], data.labels[rows]),
        batch_size=batch_size,
        vectorised=True,
        # The activations of one network fit the cache of a core; those of two do not.
        particles_at_once=1,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mnist(ClassificationExperiment):
    """Figure 7: a Bayesian network with 4594 parameters, by NVGD, SVGD and SGLD."""

    seeds: int = 3
    num_steps: int = 840
    """Steps of every method; an epoch is 420 steps."""
    tuning_steps: int = 100
    largest_step_size: float = 1e-1
    num_decades: int = 6
    measure_every: int = 105
    max_inner_steps: int = 100
    patience: int = 5
    """Training steps without improvement before the witness's training stops."""
    num_test: int = 10_000
    """Test images to measure on."""
    setting: str = "unit"
    """"unit": pixels in [0, 1], prior N(0, .15²), the witness of the published code. "authors": as
    the authors' stored results: raw pixels, prior N(0, .01²), and a witness with standardised
    input, weights drawn anew in every step, and dropout. They used 101 particles."""

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
        check_choice("setting", self.setting, SETTINGS)

    def flow(self, method: str, step_size: float | None) -> ParticleFlow:
        """The default without a step size, or a method with this one, plain or of Adam."""
        if step_size is None:
            return NVGD()
        if method == "SGLD":
            return SGLD(jnp.asarray(step_size))
        uses_adam = method.endswith("Adam")
        optimizer = adam(step_size) if uses_adam else None
        # As an array, so that all step sizes share one compiled program.
        plain = None if uses_adam else jnp.asarray(step_size)
        if method.startswith("SVGD"):
            return SVGD(plain, optimizer=optimizer)
        own = AUTHORS_WITNESS if self.setting == "authors" else {}
        return paper_nvgd(
            plain,
            **{"learning_rate": self.learning_rate, "patience": self.patience, **own},
            optimizer=optimizer,
            width=256,
            depth=3,
            max_inner_steps=self.max_inner_steps,
        )

    def target(self, *, tuning: bool) -> Target:
        """The posterior given nine tenths of the training images, for search and runs alike."""
        del tuning
        return _target(self.data_dir, self.batch_size, self.setting)

    def split(self, *, tuning: bool) -> Split:
        """Test images, or validation images for tuning."""
        data = load(self.data_dir)
        if tuning:
            images, labels = data.images, data.labels.astype(int)
            count = min(data.num_validation, self.num_test)
            return Split(images[:count], labels[:count])
        return Split(data.test.inputs[: self.num_test], data.test.labels[: self.num_test])

    def initial(self, key: PRNGKeyArray) -> Float[Array, "n d"]:
        """Draws from the prior."""
        scale = SETTINGS[self.setting].prior_scale
        return scale * jax.random.normal(key, (self.num_particles, NUM_PARAMETERS))

    def probabilities(self, particles, inputs):
        """Mean over networks of their class probabilities, in batches of images."""
        # The activations of more images do not fit the cache of a core.
        size = min(250, len(inputs))
        parts = [
            _mean_probabilities(particles, jnp.asarray(inputs[first : first + size]), self.setting)
            for first in range(0, len(inputs), size)
        ]
        return np.concatenate([np.asarray(part) for part in parts])

    def can_show(self, rows: Rows) -> bool:
        """From the first run on, because the slowest method takes most of the time."""
        return bool(self.methods_run(rows))

    def table(self, rows: Rows, arrays: Arrays) -> str:
        """All measures after a quarter, half and all of the steps, where they were taken."""
        del arrays
        lines = [["after", "", "runs", "step size", *MEASURES.values()]]
        measured = {row["step"] for row in rows if "step" in row}
        for step in (self.num_steps // 4, self.num_steps // 2, self.num_steps):
            if step not in measured:
                continue
            for method in self.methods_run(rows):
                runs = {row["task"] for row in rows if row["method"] == method and "step" in row}
                cells = self.measure_cells(rows, method, step)
                lines.append([f"{step} steps", run_label(rows, method), str(len(runs)), *cells])
        return markdown(lines)

    def draw(self, rows: Rows, arrays: Arrays, directory: Path) -> list[Path]:
        """All measures over steps."""
        del arrays
        import matplotlib.pyplot as plt

        figure, panels = plt.subplots(1, 3, figsize=(13, 3.9), layout="constrained")
        self.draw_curves(rows, panels, tuple(MEASURES))
        return [save_figure(figure, directory / "mnist.png")]


@eqx.filter_jit
def _mean_probabilities(particles: Array, images: Array, setting: str) -> Array:
    shared = patches(images / SETTINGS[setting].largest_pixel)

    def add(total: Array, parameters: Array) -> tuple[Array, None]:
        return total + jax.nn.softmax(logits(parameters, shared)), None

    start = jnp.zeros((len(images), CLASSES), particles.dtype)
    total, _ = jax.lax.scan(add, start, particles)
    return total / len(particles)
