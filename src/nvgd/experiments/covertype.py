"""Figure 6: Bayesian logistic regression on the whole Covertype data set."""

import dataclasses
import functools
from pathlib import Path
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd._support.tables import markdown, mean_and_deviation
from nvgd.experiments import datasets
from nvgd.experiments.base import Arrays, Report, Task, run_label
from nvgd.experiments.classification import MEASURES, ClassificationExperiment, Split, measures
from nvgd.experiments.figures import save_figure
from nvgd.experiments.methods import COLOURS, DEFAULT, EXACT, PAPER, paper_nvgd
from nvgd.experiments.records import Records, Rows
from nvgd.flow.methods import NVGD, SGLD, SVGD
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.targets.target import Target

REFERENCE = "Laplace"
# Shape a₀ and rate b₀ of the prior on the precision α.
PRIOR_SHAPE, PRIOR_RATE = 1.0, 0.01
# A coordinate with a smaller posterior standard deviation is well determined by the data.
WELL_DETERMINED = 0.1


def log_prior(position: Float[Array, " d"]) -> Float[Array, ""]:
    """β ~ N(0, 1/α), α ~ Gamma(a₀, rate b₀) at the position (log α, β), Jacobian included."""
    log_precision, coefficients = position[0], position[1:]
    precision = jnp.exp(log_precision)
    prior_of_coefficients = 0.5 * (
        len(coefficients) * log_precision - precision * coefficients @ coefficients
    )
    # (a₀ − 1) log α − b₀α, plus log α for the change of variables.
    return prior_of_coefficients + PRIOR_SHAPE * log_precision - PRIOR_RATE * precision


def log_likelihood(position: Float[Array, " d"], datum: tuple[Array, Array]) -> Float[Array, ""]:
    """Bernoulli with logit xᵀβ."""
    features, label = datum
    logit = features @ position[1:]
    return label * logit - jax.nn.softplus(logit)


class Data(NamedTuple):
    """Features with intercept and labels 0 and 1, shuffled: test rows, validation, the rest."""

    features: np.ndarray
    labels: np.ndarray
    num_test: int
    num_validation: int


@functools.lru_cache(maxsize=1)
def load(data_dir: Path | None) -> Data:
    """54 features, of which ten are standardised quantities, and an intercept; label 2 or not."""
    raw = datasets.load("covertype", data_dir)
    quantities = raw["quant"].astype(np.float64)
    quantities = (quantities - quantities.mean(axis=0)) / quantities.std(axis=0)
    one_hot = [np.eye(size)[raw[name]] for name, size in (("wilderness", 4), ("soil", 40))]
    features = np.concatenate([quantities, *one_hot, np.ones((len(quantities), 1))], axis=1)
    order = np.random.default_rng(0).permutation(len(features))
    num_test = len(features) // 5
    num_validation = (len(features) - num_test) // 10
    labels = (raw["label"] == 2).astype(np.float32)
    return Data(features[order].astype(np.float32), labels[order], num_test, num_validation)


@functools.lru_cache(maxsize=2)
def _target(data_dir: Path | None, tuning: bool, batch_size: int) -> Target:
    data = load(data_dir)
    first = data.num_test + (data.num_validation if tuning else 0)
    return Target(
        log_prior,
        dim=1 + data.features.shape[1],
        log_likelihood=log_likelihood,
        data=(data.features[first:], data.labels[first:]),
        batch_size=batch_size,
    )


def laplace(
    features: Float[np.ndarray, "rows k"], labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mode and standard deviations of (log α, β), by Newton's method on all rows in 64 bits."""
    features = features.astype(np.float64)
    size = features.shape[1]
    coefficients, precision, information = np.zeros(size), 1.0, np.eye(size)
    for _ in range(100):
        probability = 1 / (1 + np.exp(-features @ coefficients))
        weights = probability * (1 - probability)
        information = (features.T * weights) @ features
        gradient = features.T @ (labels - probability) - precision * coefficients
        change = np.linalg.solve(information + precision * np.eye(size), gradient)
        coefficients = coefficients + change
        # The mode of log α given β, in closed form.
        wanted = size / 2 + PRIOR_SHAPE
        updated = wanted / (coefficients @ coefficients / 2 + PRIOR_RATE)
        is_settled = abs(change).max() < 1e-9 and abs(updated / precision - 1) < 1e-9
        precision = updated
        if is_settled:
            break
    hessian = np.empty((size + 1, size + 1))
    hessian[1:, 1:] = information + precision * np.eye(size)
    hessian[0, 1:] = hessian[1:, 0] = precision * coefficients
    hessian[0, 0] = precision * (coefficients @ coefficients / 2 + PRIOR_RATE)
    deviations = np.sqrt(np.diagonal(np.linalg.inv(hessian)))
    return np.concatenate([[np.log(precision)], coefficients]), deviations


@dataclasses.dataclass(frozen=True, kw_only=True)
class Covertype(ClassificationExperiment):
    """Figure 6: logistic regression on 581,012 rows in minibatches: NVGD, SVGD, SGLD."""

    num_steps: int = 4085
    tuning_steps: int = 1000
    largest_step_size: float = 1e-1
    num_decades: int = 7
    measure_every: int = 200
    max_inner_steps: int = 10

    name: ClassVar[str] = "covertype"
    quick_limits: ClassVar[dict[str, int]] = {
        "num_steps": 60,
        "tuning_steps": 20,
        "num_decades": 2,
        "measure_every": 30,
        "num_particles": 20,
    }
    methods: ClassVar[tuple[str, ...]] = (DEFAULT, PAPER, "SVGD", "SGLD")

    def flow(self, method: str, step_size: float | None) -> ParticleFlow:
        """The default without a step size, or a method with this one."""
        if step_size is None:
            return NVGD()
        # As an array, so that all step sizes share one compiled program.
        size = jnp.asarray(step_size)
        match method:
            case _ if method == PAPER:
                return paper_nvgd(size, self.learning_rate, max_inner_steps=self.max_inner_steps)
            case "SVGD":
                return SVGD(size)
            case _:
                return SGLD(size)

    def target(self, *, tuning: bool) -> Target:
        """The posterior given all training rows, for tuning without the validation rows."""
        return _target(self.data_dir, tuning, self.batch_size)

    def split(self, *, tuning: bool) -> Split:
        """Test or validation rows."""
        data = load(self.data_dir)
        rows = slice(data.num_test, data.num_test + data.num_validation)
        rows = rows if tuning else slice(0, data.num_test)
        return Split(data.features[rows], data.labels[rows].astype(int))

    def initial(self, key: PRNGKeyArray) -> Float[Array, "n d"]:
        """Draws from the prior."""
        precision_key, noise_key = jax.random.split(key)
        size = load(self.data_dir).features.shape[1]
        precision = jax.random.gamma(precision_key, PRIOR_SHAPE, (self.num_particles, 1))
        precision = precision / PRIOR_RATE
        noise = jax.random.normal(noise_key, (self.num_particles, size))
        return jnp.concatenate([jnp.log(precision), noise / jnp.sqrt(precision)], axis=1)

    def probabilities(self, particles, inputs):
        """Mean over particles of the two classes' probabilities."""
        positive = np.asarray(_mean_probability(particles, jnp.asarray(inputs)), np.float64)
        return np.stack([1 - positive, positive], axis=1)

    def tasks(self) -> list[Task]:
        """Searches, runs, and the reference posterior."""
        return [*super().tasks(), Task(REFERENCE, REFERENCE, 0, 1)]

    def run(self, task: Task, report: Report, records: Records) -> Arrays:
        """The reference posterior, or a task that all classification experiments have."""
        if task.method != REFERENCE:
            return super().run(task, report, records)
        data, split = load(self.data_dir), self.split(tuning=False)
        mode, deviations = laplace(data.features[data.num_test :], data.labels[data.num_test :])
        mode_prediction = self.probabilities(jnp.asarray(mode[None], jnp.float32), split.inputs)
        report.measure(step=0, **measures(mode_prediction, split.labels))
        return {"mean": mode, "sd": deviations}

    def table(self, rows: Rows, arrays: Arrays) -> str:
        """Measures of the predictions, and errors against the reference posterior."""
        mean, deviation = (arrays[f"{REFERENCE}/{name}"] for name in ("mean", "sd"))
        is_determined = deviation < WELL_DETERMINED
        comparisons = ("mean error / sd", "sd ratio", "sd within 20 %")
        lines = [["", "step size", *MEASURES.values(), *comparisons]]
        for method in self.methods:
            particles = [arrays[f"{method}/{seed}/particles"] for seed in range(self.seeds)]
            errors = [np.median(abs(p.mean(axis=0) - mean) / deviation) for p in particles]
            ratios = [(p.std(axis=0) / deviation)[is_determined] for p in particles]
            lines.append(
                [
                    run_label(rows, method),
                    *self.measure_cells(rows, method, self.num_steps),
                    mean_and_deviation(errors, 2),
                    mean_and_deviation([np.median(r) for r in ratios], 2),
                    mean_and_deviation([np.mean(abs(r - 1) < 0.2) for r in ratios], 2),
                ]
            )
        optimum = next(r for r in rows if r["method"] == REFERENCE and "accuracy" in r)
        cells = [f"{optimum[name]:.4f}" for name in MEASURES]
        lines.append([f"{REFERENCE}, at its mode", "", *cells, "0", "1", "1"])
        count = f"{is_determined.sum()} of {len(deviation)}"
        note = (
            f"Test fifth, mean ± sd over {self.seeds} runs. Mean error: its size in "
            "standard deviations of the reference posterior (Laplace at the full-data optimum), "
            f"median over coordinates. sd ratio: median over the {count} coordinates whose "
            f"reference sd is below {WELL_DETERMINED}; last column: the share of them with a ratio "
            "in 0.8…1.2."
        )
        return markdown(lines) + "\n\n" + note

    def draw(self, rows: Rows, arrays: Arrays, directory: Path) -> list[Path]:
        """Accuracy and log likelihood over steps; means and deviations against the reference."""
        import matplotlib.pyplot as plt

        figure, panels = plt.subplots(2, 2, figsize=(10, 7.4), layout="constrained")
        panels = panels.ravel()
        self.draw_curves(rows, panels[:2], ("accuracy", "log_likelihood"))
        mean, deviation = (arrays[f"{REFERENCE}/{name}"] for name in ("mean", "sd"))
        # Reversed, so that the default is drawn on top.
        for method in reversed(self.methods):
            runs = [arrays[f"{method}/{seed}/particles"] for seed in range(self.seeds)]
            errors = np.mean([abs(p.mean(axis=0) - mean) / deviation for p in runs], axis=0)
            ratios = np.mean([p.std(axis=0) / deviation for p in runs], axis=0)
            for axes, values in ((panels[2], errors), (panels[3], ratios)):
                axes.scatter(deviation, values, s=13, color=self.colours[method], alpha=0.8, lw=0)
        panels[3].axhline(1, color=COLOURS[EXACT], linestyle="--", linewidth=1.2)
        for axes, label in (
            (panels[2], "error of the mean / sd"),
            (panels[3], "sd / reference sd"),
        ):
            axes.set(xscale="log", yscale="log", ylabel=label)
            axes.set_xlabel("reference sd (one point per coordinate)")
            axes.spines[["top", "right"]].set_visible(False)
        return [save_figure(figure, directory / "covertype.png")]


@eqx.filter_jit
def _mean_probability(particles: Array, features: Array) -> Array:
    return jnp.mean(jax.nn.sigmoid(features @ particles[:, 1:].T), axis=1)
