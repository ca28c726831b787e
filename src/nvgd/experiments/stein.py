"""Figure 2: how close a trained witness comes to the optimal direction f* = ∇log p − ∇log q."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from nvgd._support.errors import check_count, check_positive
from nvgd._support.tables import deviation, markdown, mean_and_deviation
from nvgd.evaluation.densities import Gaussian
from nvgd.experiments.base import Arrays, Experiment, Report, Task
from nvgd.experiments.figures import band, save_figure
from nvgd.experiments.methods import COLOURS, DEFAULT, EXACT, PAPER
from nvgd.experiments.records import Records, Rows
from nvgd.flow.directions.kernel import Kernel
from nvgd.flow.directions.residual import normal_scores
from nvgd.flow.methods import NVGD
from nvgd.stein.divergences import AbstractDivergence, HutchinsonDivergence
from nvgd.stein.operator import regularised_stein_discrepancy
from nvgd.stein.witnesses import MLP

METHODS = (DEFAULT, PAPER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stein(Experiment):
    """Figure 2: train witnesses on fixed particles of N(0, I) for an ill-conditioned Gaussian."""

    dim: int = 50
    """Dimension of the Gaussian."""
    smallest_variance: float = 1e-4
    """Variances are spaced logarithmically from this to 1."""
    num_particles: int = 1000
    """Training particles, and as many held-out particles."""
    num_steps: int = 1000
    """Training steps."""
    learning_rate: float = 1e-2
    """Learning rate of Adam on the paper's witness."""
    measure_every: int = 10
    """Training steps between measurements."""

    name: ClassVar[str] = "stein"
    quick_limits: ClassVar[dict[str, int]] = {"num_steps": 200}

    def __post_init__(self):
        super().__post_init__()
        for name in ("dim", "num_particles", "num_steps", "measure_every"):
            check_count(name, getattr(self, name), minimum=2 if name == "num_particles" else 1)
        check_positive("smallest_variance", self.smallest_variance)
        check_positive("learning_rate", self.learning_rate)

    def tasks(self) -> list[Task]:
        """Both methods with every seed."""
        return [
            Task(f"{method}/{seed}", method, seed, self.num_steps)
            for method in METHODS
            for seed in range(self.seeds)
        ]

    def run(self, task: Task, report: Report, records: Records) -> Arrays:
        """Train, and compare with f* on held-out particles."""
        del records
        target = Gaussian.ill_conditioned(self.dim, self.smallest_variance)
        variances = jnp.diagonal(target.covariance)
        train_key, held_out_key, witness_key, run_key = jax.random.split(
            jax.random.key(task.seed), 4
        )
        train, held_out = (
            jax.random.normal(key, (self.num_particles, self.dim))
            for key in (train_key, held_out_key)
        )

        def score(x: Array) -> Array:
            return -x / variances

        def best(x: Array) -> Array:
            return x + score(x)

        optimum = jnp.mean(jnp.sum(best(held_out) ** 2, axis=-1))
        report.measure(
            optimum=optimum,
            kernelised=_kernelised_discrepancy(train, score(train), held_out, best),
        )
        given = _Given(train, score, self.learning_rate, witness_key, run_key)
        learner = (_PaperLearner if task.method == PAPER else _DefaultLearner)(given)
        for step in [*range(0, self.num_steps, self.measure_every), self.num_steps]:
            values = learner.field(held_out)
            overlap = jnp.mean(jnp.sum(values * best(held_out), axis=-1))
            size = jnp.mean(jnp.sum(values**2, axis=-1))
            error = jnp.mean(jnp.sum((values - best(held_out)) ** 2, axis=-1))
            report.measure(
                step=step,
                discrepancy=overlap,
                regularised=overlap - size / 2,
                relative_error=jnp.sqrt(error / optimum),
            )
            report.step(step, f"{float(overlap / optimum):.3f} of the optimum")
            length = min(self.measure_every, self.num_steps - step)
            if length:
                learner.train(step, length)
        return {}

    def table(self, rows: Rows, arrays: Arrays) -> str:
        """Discrepancies as shares of their optimum."""
        del arrays
        optima = {r["task"]: r["optimum"] for r in rows if "optimum" in r}
        kernelised = [r["kernelised"] / r["optimum"] for r in rows if "optimum" in r]
        lines = [
            ["share of the optimum, held out", "Stein discrepancy", "regularised", "relative error"]
        ]
        for method in METHODS:
            for step in dict.fromkeys((min(200, self.num_steps), self.num_steps)):
                at_step = [r for r in rows if r["method"] == method and r.get("step") == step]
                shares = [r["discrepancy"] / optima[r["task"]] for r in at_step]
                regularised = [2 * r["regularised"] / optima[r["task"]] for r in at_step]
                errors = [r["relative_error"] for r in at_step]
                if at_step:
                    lines.append(
                        [
                            f"{method}, {step} steps",
                            mean_and_deviation(shares, 3),
                            mean_and_deviation(regularised, 3),
                            f"{np.mean(errors):.2g} ± {deviation(errors):.1g}",
                        ]
                    )
        lines.append(["kernelised, rescaled to ‖f*‖", mean_and_deviation(kernelised, 3), "", ""])
        return markdown(lines)

    def draw(self, rows: Rows, arrays: Arrays, directory: Path) -> list[Path]:
        """Discrepancy and relative error over the training steps."""
        del arrays
        import matplotlib.pyplot as plt

        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
        optima = {r["task"]: r["optimum"] for r in rows if "optimum" in r}
        for method in METHODS:
            curves = [r for r in rows if r["method"] == method and "step" in r]
            tasks = sorted({r["task"] for r in curves})
            steps = np.array([r["step"] for r in curves if r["task"] == tasks[0]])
            for axes, name in ((left, "discrepancy"), (right, "relative_error")):
                values = np.array(
                    [[r[name] for r in curves if r["task"] == task] for task in tasks]
                )
                if axes is left:
                    values /= np.array([[optima[task]] for task in tasks])
                band(axes, steps, values, COLOURS[method], method)
        kernelised = np.mean([r["kernelised"] / r["optimum"] for r in rows if "optimum" in r])
        left.axhline(float(kernelised), color=COLOURS["SVGD"], label="kernel (SVGD)")
        left.axhline(1, color=COLOURS[EXACT], linestyle="--", label="optimum")
        left.set(ylabel="Stein discrepancy / optimum", ylim=(0, 1.06))
        right.set(ylabel="relative error of the field", yscale="log")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
        for axes in (left, right):
            axes.set(xlabel="training step", xlim=(0, self.num_steps))
            axes.spines[["top", "right"]].set_visible(False)
        return [save_figure(figure, directory / "stein.png")]


class _Given(NamedTuple):
    """Inputs of both learners; `learning_rate` is for the paper's."""

    particles: Array
    score: Callable[[Array], Array]
    learning_rate: float
    witness_key: PRNGKeyArray
    run_key: PRNGKeyArray


class _PaperLearner:
    """A network that learns the whole field, trained as in the paper."""

    def __init__(self, given: _Given):
        self._given = given
        self._witness = MLP(given.particles.shape[1], key=given.witness_key)
        parameters = eqx.filter(self._witness, eqx.is_array)
        self._optimizer = optax.adam(given.learning_rate).init(parameters)

    def field(self, held_out: Array) -> Array:
        """Values of the network."""
        return jax.vmap(self._witness)(held_out)

    def train(self, step: int, num_steps: int) -> None:
        """Take `num_steps` training steps after step `step`."""
        self._witness, self._optimizer = _ascend(
            self._witness,
            self._optimizer,
            self._given.particles,
            self._given.score(self._given.particles),
            self._given.learning_rate,
            num_steps,
            jax.random.fold_in(self._given.run_key, step),
        )


class _DefaultLearner:
    """The default direction: score, normal repulsion, and a network for the remainder."""

    def __init__(self, given: _Given):
        self._given = given
        self._state = NVGD().direction.init(given.particles, key=given.witness_key)
        self._weight = jnp.zeros(())

    def field(self, held_out: Array) -> Array:
        """Values of the direction at these particles."""
        learned = jax.vmap(self._state.network.witness)(held_out)
        return self._given.score(held_out) + normal_scores(held_out) + self._weight * learned

    def train(self, step: int, num_steps: int) -> None:
        """Take at most `num_steps` training steps; validation particles may stop it earlier."""
        direction = NVGD(max_inner_steps=num_steps).direction
        fit = eqx.filter_jit(direction.fit)(
            self._given.particles,
            self._given.score(self._given.particles),
            self._state,
            view=None,
            key=jax.random.fold_in(self._given.run_key, step),
        )
        self._state, self._weight = fit.state, fit.diagnostics["network_weight"]


def _kernelised_discrepancy(
    particles: Array, scores: Array, held_out: Array, best: Callable[[Array], Array]
) -> Float[Array, ""]:
    """Stein discrepancy of SVGD's field on held-out particles, rescaled to the length of f*.

    Held out, because at a particle that the field is built from, its own score dominates.
    """
    field = jax.lax.map(Kernel().witness(particles, scores), held_out)
    optimal = best(held_out)
    overlap = jnp.mean(jnp.sum(field * optimal, axis=-1))
    return overlap * jnp.linalg.norm(optimal) / jnp.linalg.norm(field)


@eqx.filter_jit
def _ascend(
    witness: MLP,
    optimizer_state: PyTree,
    particles: Array,
    scores: Array,
    learning_rate: float,
    num_steps: int,
    key: PRNGKeyArray,
) -> tuple[MLP, PyTree]:
    """Training steps of the paper: fixed particles, fresh Gaussian probes in every step."""
    transformation = optax.adam(learning_rate)
    method: AbstractDivergence = HutchinsonDivergence("gaussian")

    def loss(witness: MLP, key: PRNGKeyArray) -> Array:
        return -regularised_stein_discrepancy(witness, particles, scores, method, key=key)

    def step(carry: tuple[MLP, PyTree], key: PRNGKeyArray) -> tuple[tuple[MLP, PyTree], None]:
        witness, state = carry
        gradients = jax.grad(loss)(witness, key)
        updates, state = transformation.update(gradients, state)
        return (eqx.apply_updates(witness, updates), state), None

    carry, _ = jax.lax.scan(step, (witness, optimizer_state), jax.random.split(key, num_steps))
    return carry
