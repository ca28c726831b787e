"""Figure 2: how close one trained witness comes to the best direction there is."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from nvgd.densities import Gaussian
from nvgd.directions import KernelDirection
from nvgd.errors import check_count, check_positive
from nvgd.experiments.base import Arrays, Experiment, Report, Rows, Task
from nvgd.experiments.records import Records
from nvgd.files import write_atomically
from nvgd.stein import AbstractDivergence, HutchinsonDivergence, regularised_stein_discrepancy
from nvgd.tables import markdown, spread
from nvgd.witnesses import MLP


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stein(Experiment):
    """Figure 2: train a witness on fixed particles of N(0, I) for an ill-conditioned Gaussian."""

    dim: int = 50
    """Dimension of the Gaussian."""
    smallest_variance: float = 1e-4
    """Variances are spaced logarithmically from this to 1."""
    num_particles: int = 1000
    """Training particles; as many again are held out."""
    num_steps: int = 1000
    """Training steps."""
    learning_rate: float = 1e-2
    """Of Adam on the witness."""
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
        """One a seed."""
        return [Task(f"seed-{seed}", "NVGD", seed, self.num_steps) for seed in range(self.seeds)]

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

        def best(x: Array) -> Array:
            return x - x / variances

        optimum = jnp.mean(jnp.sum(best(held_out) ** 2, axis=-1))
        report.measure(
            optimum=optimum,
            kernelised=_kernelised_discrepancy(train, -train / variances, held_out, best),
        )
        witness = MLP(self.dim, key=witness_key)
        optimizer_state = optax.adam(self.learning_rate).init(eqx.filter(witness, eqx.is_array))
        for step in [*range(0, self.num_steps, self.measure_every), self.num_steps]:
            values = jax.vmap(witness)(held_out)
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
                witness, optimizer_state = _ascend(
                    witness,
                    optimizer_state,
                    train,
                    -train / variances,
                    self.learning_rate,
                    length,
                    jax.random.fold_in(run_key, step),
                )
        return {}

    def table(self, rows: Rows, arrays: Arrays) -> str:
        """Discrepancies as shares of the optimum."""
        del arrays
        optima = {r["task"]: r["optimum"] for r in rows if "optimum" in r}
        kernelised = [r["kernelised"] / r["optimum"] for r in rows if "optimum" in r]
        last = [r for r in rows if r.get("step") == self.num_steps]
        shares = [r["discrepancy"] / optima[r["task"]] for r in last]
        regularised = [2 * r["regularised"] / optima[r["task"]] for r in last]
        return markdown(
            [
                [
                    "share of the optimum, held out",
                    "Stein discrepancy",
                    "regularised",
                    "relative error",
                ],
                [
                    f"neural, {self.num_steps} steps",
                    spread(shares, 3),
                    spread(regularised, 3),
                    spread([r["relative_error"] for r in last], 3),
                ],
                ["kernelised, rescaled to ‖f*‖", spread(kernelised, 3), "", ""],
            ]
        )

    def draw(self, rows: Rows, arrays: Arrays, directory: Path) -> list[Path]:
        """Discrepancy over training, and the relative error beside it."""
        del arrays
        import matplotlib.pyplot as plt

        from nvgd.experiments.figures import band

        curves = [r for r in rows if "step" in r]
        tasks = sorted({r["task"] for r in curves})
        steps = np.array([r["step"] for r in curves if r["task"] == tasks[0]])

        def curve(name: str) -> np.ndarray:
            return np.array([[r[name] for r in curves if r["task"] == task] for task in tasks])

        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
        band(left, steps, curve("discrepancy"), "#d1495b", "neural (NVGD)")
        for name, colour, style in (("optimum", "0.2", "--"), ("kernelised", "#2e6f95", "-")):
            level = np.mean([r[name] for r in rows if name in r])
            left.axhline(level, color=colour, linestyle=style, label=name)
        left.set(
            xlabel="training step", ylabel="Stein discrepancy", xlim=(0, steps[-1]), ylim=(0, None)
        )
        left.legend(frameon=False)
        band(right, steps, curve("relative_error"), "#d1495b", "")
        right.set(xlabel="training step", ylabel="relative error of the field", yscale="log")
        right.set_xlim(0, steps[-1])
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
        path = directory / "stein.png"
        write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=130))
        plt.close(figure)
        return [path]


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
