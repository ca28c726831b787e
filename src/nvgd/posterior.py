"""What came out of a run."""

import dataclasses

import jax
import numpy as np
from jaxtyping import Array, Float

from nvgd.flow import FlowState, ParticleFlow
from nvgd.tables import align
from nvgd.target import Target


@dataclasses.dataclass(frozen=True, repr=False)
class Posterior:
    """Particles that represent the target, with the record of how they got there.

    Attributes:
        particles: flat, in unconstrained space, shape (n, dim).
        history: one array a quantity, one entry a step: `log_density` (mean over particles),
            `step_norm`, `num_gradients` (so far) and the direction's own, such as
            `stein_discrepancy` (on held-out particles) and `inner_steps`.
        metrics: the user's own measures, under their names, with the steps at which they were
            taken under `step`.
        status: "completed", or a sentence that says why and where the run stopped early.
        state: the state after the last good step; `state.direction.witness` is NVGD's network.
    """

    particles: Float[Array, "n d"]
    target: Target
    flow: ParticleFlow
    state: FlowState
    history: dict[str, np.ndarray]
    metrics: dict[str, np.ndarray]
    status: str

    @property
    def completed(self) -> bool:
        """Whether every step asked for was taken."""
        return self.status == "completed"

    @property
    def num_steps(self) -> int:
        """Steps behind the particles."""
        return int(self.state.step)

    @property
    def draws(self) -> dict[str, Array]:
        """The particles under the model's own names, in constrained space."""
        return self.target.present(self.particles)

    def summary(self) -> str:
        """A table of mean, standard deviation and quantiles of every scalar in `draws`."""
        rows: list[tuple[str, ...]] = [("", "mean", "sd", "5%", "50%", "95%")]
        for name, values in self.draws.items():
            columns = np.asarray(values, np.float64).reshape(len(self.particles), -1)
            indices = np.ndindex(values.shape[1:])
            for index, column in zip(indices, columns.T, strict=True):
                label = name + (f"[{', '.join(map(str, index))}]" if index else "")
                quantiles = np.quantile(column, (0.05, 0.5, 0.95))
                numbers = (column.mean(), column.std(), *quantiles)
                rows.append((label, *(f"{number:.4g}" for number in numbers)))
        return align(rows)

    def __repr__(self) -> str:
        shapes = jax.tree.map(lambda leaf: leaf.shape[1:], self.draws)
        return (
            f"Posterior({type(self.flow).__name__}, {len(self.particles)} particles, "
            f"draws={shapes}, {self.num_steps} steps, {self.status})"
        )
