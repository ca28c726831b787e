"""Figure 2: how close one trained witness comes to the best direction there is."""

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

from nvgd.densities import Gaussian
from nvgd.directions import KernelDirection
from nvgd.directions.residual import normal_scores
from nvgd.divergences import AbstractDivergence, HutchinsonDivergence
from nvgd.errors import check_count, check_positive
from nvgd.experiments.base import DEFAULT, PAPER, Arrays, Experiment, Report, Rows, Task
from nvgd.experiments.records import Records
from nvgd.files import write_atomically
from nvgd.methods import NVGD
from nvgd.stein import regularised_stein_discrepancy
from nvgd.tables import deviation, markdown, spread
from nvgd.witnesses import MLP

METHODS = (DEFAULT, PAPER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stein(Experiment):
    """Figure 2: train witnesses on fixed particles of N(0, I) for an ill-conditioned Gaussian."""

    dim: int = 50
    """Dimension of the Gaussian."""
    smallest_variance: float = 1e-4
    """Variances are spaced logarithmically from this to 1."""
    num_particles: int = 1000
    """Training particles; as many again are held out."""
    num_steps: int = 1000
    """Training steps."""
    learning_rate: float = 1e-2
    """Of Adam on the paper's witness."""
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
        """Both forms, every seed."""
        return [
            Task(f"{method}/{seed}", method, seed, self.num_steps)
            for method in METHODS
            for seed in range(self.seeds)
        ]

    def run(self, task: Task, report: Report, records: Records) -> Arrays:
        """Train, and measure on held-out particles against f* = ∇log p − ∇log q."""
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
        """Discrepancies as shares of the optimum."""
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
                            spread(shares, 3),
                            spread(regularised, 3),
                            f"{np.mean(errors):.2g} ± {deviation(errors):.1g}",
                        ]
                    )
        lines.append(["kernelised, rescaled to ‖f*‖", spread(kernelised, 3), "", ""])
        return markdown(lines)

    def draw(self, rows: Rows, arrays: Arrays, directory: Path) -> list[Path]:
        """Discrepancy over training, and the relative error beside it."""
        del arrays
        import matplotlib.pyplot as plt

        from nvgd.experiments.figures import COLOURS, band

        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
        for method in METHODS:
            curves = [r for r in rows if r["method"] == method and "step" in r]
            tasks = sorted({r["task"] for r in curves})
            steps = np.array([r["step"] for r in curves if r["task"] == tasks[0]])
            for axes, name in ((left, "discrepancy"), (right, "relative_error")):
                values = [[r[name] for r in curves if r["task"] == task] for task in tasks]
                band(axes, steps, np.array(values), COLOURS[method], method)
        for name, colour, style in (("optimum", "0.2", "--"), ("kernelised", COLOURS["SVGD"], "-")):
            level = np.mean([r[name] for r in rows if name in r])
            left.axhline(level, color=colour, linestyle=style, label=name)
        left.set(ylabel="Stein discrepancy", ylim=(0, None))
        right.set(ylabel="relative error of the field", yscale="log")
        left.legend(frameon=False)
        for axes in (left, right):
            axes.set(xlabel="training step", xlim=(0, self.num_steps))
            axes.spines[["top", "right"]].set_visible(False)
        path = directory / "stein.png"
        write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=130))
        plt.close(figure)
        return [path]


class _Given(NamedTuple):
    """What both forms learn from; the rate is the paper's."""

    particles: Array
    score: Callable[[Array], Array]
    learning_rate: float
    witness_key: PRNGKeyArray
    run_key: PRNGKeyArray


class _PaperLearner:
    """The whole field is a network, trained as the paper does."""

    def __init__(self, given: _Given):
        self._given = given
        self._witness = MLP(given.particles.shape[1], key=given.witness_key)
        parameters = eqx.filter(self._witness, eqx.is_array)
        self._optimizer = optax.adam(given.learning_rate).init(parameters)

    def field(self, held_out: Array) -> Array:
        """The network's values."""
        return jax.vmap(self._witness)(held_out)

    def train(self, step: int, num_steps: int) -> None:
        """Ascend from `step` on."""
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
    """Score and normal repulsion are given; a network learns what remains, with its own rate."""

    def __init__(self, given: _Given):
        self._given = given
        self._state = NVGD().direction.init(given.particles, key=given.witness_key)
        self._weight = jnp.zeros(())

    def field(self, held_out: Array) -> Array:
        """What the direction would be at these particles."""
        learned = jax.vmap(self._state.network.witness)(held_out)
        return self._given.score(held_out) + normal_scores(held_out) + self._weight * learned

    def train(self, step: int, num_steps: int) -> None:
        """At most `num_steps` of training, less if the held-out part tells to stop."""
        direction = NVGD(max_inner_steps=num_steps).direction
        _, self._state, diagnostics = eqx.filter_jit(direction)(
            self._given.particles,
            self._given.score(self._given.particles),
            self._state,
            key=jax.random.fold_in(self._given.run_key, step),
        )
        self._weight = diagnostics["network_weight"]


def _kernelised_discrepancy(
    particles: Array, scores: Array, held_out: Array, best: Callable[[Array], Array]
) -> Float[Array, ""]:
    """SD of SVGD's field on held-out particles, rescaled to the length of f*.

    On the particles that it is built from, the field is mostly each one's own score, which says
    little of where others should go.
    """
    field = jax.lax.map(KernelDirection().witness(particles, scores), held_out)
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
    """Training steps with the particles held fixed and fresh Gaussian probes, as the paper's."""
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
