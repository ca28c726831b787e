"""The data of a finished run, and access to its draws."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nvgd._support.errors import InputError
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.flow.stage import StageRecord
from nvgd.posterior.chains import Chains
from nvgd.targets.models import Labels
from nvgd.targets.target import Target


@dataclasses.dataclass(frozen=True, repr=False)
class RunRecord:
    """Draws and particles that represent the target, with the record of their run.

    Attributes:
        particles: flat, in unconstrained space, shape (n, dim). Where corrections ran, one draw
            of every chain, chosen so that together they represent all draws as evenly as possible.
        history: one array per quantity, one entry per step: `log_density` (mean over particles),
            `step_norm`, `num_gradients` (cumulative) and quantities of the stage, such as
            `stein_discrepancy` (on held-out particles), `inner_steps` and `acceptance`; NaN, or 0
            for counts, where a stage does not measure a quantity.
        metrics: the user's metrics by name, and under `step` the steps at which they were
            evaluated.
        status: "completed", or a sentence that says why and where the run stopped early.
        num_kept: number of states of a thinned run that `particles` holds, concatenated; 1 without
            thinning.
        method: the flow's name.
        num_steps: number of steps taken.
        stages: the stages of the run, as pairs of a kind, "flow" or "corrections", and the step at
            which the stage ended.
        target: the sampled target; None in a posterior that was loaded without it.
        flow: the flow of the run; None in a loaded posterior.
        state: the state of the last stage after its last good step; None in a loaded posterior.
            Of a run that ended with corrections, a `CorrectionState` with the chains.
        flow_state: the state at the end of the flow, whatever followed it;
            `flow_state.direction.witness` is NVGD's network. None in a loaded posterior, or if the
            run was resumed after its flow.
        replicate: a function from the number of a replicate to the particles of an independent
            run from other starting particles. None in a loaded posterior.
        stored: contents of the file that replace the target's in a loaded posterior.
        chains: the chains of the corrections in unconstrained space, thinned, with their log
            densities and scores; None if there were no corrections.
        notes: messages about faults from which the run recovered.
        density_error: standard deviation over the draws of the error of the log density that the
            chains used, in nats, measured against all rows; 0 if they used all rows.
        extend: further draws of the chains; None without chains, and in a loaded posterior.
    """

    particles: Float[Array, "n d"]
    history: dict[str, np.ndarray]
    metrics: dict[str, np.ndarray]
    status: str
    num_kept: int
    method: str
    num_steps: int
    target: Target | None = None
    flow: ParticleFlow | None = None
    state: Any = None
    replicate: Callable[[int], np.ndarray] | None = None
    stored: dict[str, Any] | None = None
    stages: tuple[StageRecord, ...] = ()
    flow_state: Any = None
    chains: Chains | None = None
    notes: tuple[str, ...] = ()
    density_error: float = 0.0
    extend: Callable[[int, int], Chains] | None = None

    @property
    def completed(self) -> bool:
        """Whether every step of the run was taken."""
        return self.status == "completed"

    def known_target(self, purpose: str) -> Target:
        """The target; raises an `InputError` if the posterior was loaded without it."""
        if self.target is None:
            raise InputError(
                f"{purpose} needs the target: pass it to nvgd.load(path, target=target)."
            )
        return self.target

    @functools.cached_property
    def draws(self) -> dict[str, Array]:
        """Draws in constrained space, one array of shape (chain, draw, …) per name of the model.

        Where corrections ran, their chains, thinned so that successive draws are nearly
        independent. Otherwise the particles: one chain of them, or in a thinned run one chain per
        particle.
        """
        if self.target is None:
            assert self.stored is not None
            return self.stored["draws"]
        shown = self.target.present(jnp.asarray(self.flat_positions))
        return {name: self.by_chain(values) for name, values in shown.items()}

    @property
    def flat_log_densities(self) -> Float[np.ndarray, " m"] | None:
        """Log density of every draw, chain after chain; None if all data cannot be read again."""
        if self.chains is not None:
            return self.chains.log_densities.ravel()
        return (
            self._chain_after_chain(self.log_densities_and_scores[0]) if self.has_scores else None
        )

    @property
    def flat_scores(self) -> Float[np.ndarray, "m d"] | None:
        """Score of every draw, chain after chain; None if all data cannot be read again."""
        if self.chains is not None:
            return self.chains.scores.reshape(-1, self.particles.shape[1])
        return (
            self._chain_after_chain(self.log_densities_and_scores[1]) if self.has_scores else None
        )

    @property
    def flat_positions(self) -> Float[np.ndarray, "m d"]:
        """The draws as flat positions in unconstrained space, chain after chain."""
        if self.chains is not None:
            return self.chains.positions.reshape(-1, self.particles.shape[1])
        return self._chain_after_chain(np.asarray(self.particles))

    def _chain_after_chain(self, values: np.ndarray) -> np.ndarray:
        """Reorder values of the particles, which a thinned run stores state after state."""
        by_time = values.reshape(self.num_kept, -1, *values.shape[1:])
        return np.swapaxes(by_time, 0, 1).reshape(values.shape)

    def by_chain(self, values: Any) -> Any:
        """Values of the draws, chain after chain, with leading axes chain and draw."""
        if self.chains is not None:
            num_draws = self.chains.positions.shape[1]
        else:
            num_draws = len(values) if self.num_kept == 1 else self.num_kept
        return values.reshape(-1, num_draws, *values.shape[1:])

    @functools.cached_property
    def log_densities_and_scores(
        self,
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n d"]]:
        """Log density and score of every particle, from one pass over all data."""
        if not self.has_scores:
            raise InputError(
                "this needs a pass over all data, which an iterator or generator does not allow "
                "after the run: give BatchStream a list or a data loader."
            )
        if self.target is None:
            assert self.stored is not None
            return self.stored["log_densities"], self.stored["scores"]
        log_densities, scores = self.target.on_all_data(self.particles)
        return np.asarray(log_densities), np.asarray(scores)

    @property
    def has_scores(self) -> bool:
        """Whether scores from all data are stored, or can be computed."""
        if self.target is None:
            return self.stored is not None and "scores" in self.stored
        return self.target.can_use_all_data

    @property
    def labels(self) -> Labels:
        """Names of the draws' axes and of the entries along them."""
        if self.target is not None:
            return self.target.model.labels()
        assert self.stored is not None
        return self.stored["labels"]

    @property
    def deterministics(self) -> tuple[str, ...]:
        """Names of the draws that are functions of other draws, as far as the model knows."""
        if self.target is not None:
            return self.target.model.deterministics()
        assert self.stored is not None
        return self.stored["deterministics"]

    @property
    def ordered_names(self) -> list[str]:
        """Names of the draws in the order of tables and figures.

        Scalars come before arrays, so that hyperparameters are seen first, and deterministic
        variables come last.
        """
        derived = self.deterministics
        return sorted(self.draws, key=lambda name: (name in derived, self.draws[name].ndim > 2))
