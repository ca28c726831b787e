"""What came out of a run."""

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nvgd._support.archives import read_archive, write_archive
from nvgd._support.errors import (
    InputError,
    check_choice,
    check_count,
    check_kind,
    check_names,
    check_seed,
)
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.flow.stage import StageRecord
from nvgd.posterior.diagnostics.diagnose import diagnose
from nvgd.posterior.diagnostics.verdict import Diagnosis
from nvgd.posterior.reruns import AbstractRerun
from nvgd.posterior.summary import Summary, summarise
from nvgd.targets.models import Labels
from nvgd.targets.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = "posterior"


@dataclasses.dataclass(frozen=True, repr=False)
class Posterior:
    """Particles that represent the target, with the record of how they got there.

    Attributes:
        particles: flat, in unconstrained space, shape (n, dim).
        history: one array per quantity, one entry per step: `log_density` (mean over particles),
            `step_norm`, `num_gradients` (so far) and the stage's own, such as `stein_discrepancy`
            (on particles that the witness was not fitted to), `inner_steps` and `acceptance`; NaN
            where a stage does not measure a quantity.
        metrics: the user's own measures, under their names, with the steps at which they were
            taken under `step`.
        status: "completed", or a sentence that says why and where the run stopped early.
        num_kept: how many states of a thinned run `particles` holds, one after the other; else 1.
        method: the flow's name.
        num_steps: steps behind the last particles.
        stages: what the run consisted of: pairs of a kind, "flow" or "corrections", and the step
            at which it ended.
        target, flow, state: what was sampled, how, and the state of the last stage after its last
            good step. After a flow, `state.direction.witness` is NVGD's network. None in a
            posterior that was loaded without its target.
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
    rerun: AbstractRerun | None = None
    """Runs the sampler again; None in a posterior that was loaded."""
    stored: dict[str, Any] | None = None
    """What a file held of the things that the target would give."""
    stages: tuple[StageRecord, ...] = ()

    @property
    def completed(self) -> bool:
        """Whether every step of the run was taken."""
        return self.status == "completed"

    def known_target(self, purpose: str) -> Target:
        """The target, or an error that says how to have it."""
        if self.target is None:
            raise InputError(
                f"{purpose} needs the target: pass it to nvgd.load(path, target=target)."
            )
        return self.target

    @functools.cached_property
    def draws(self) -> dict[str, Array]:
        """The particles under the model's own names, in constrained space."""
        if self.target is not None:
            return self.target.present(self.particles)
        assert self.stored is not None
        return self.stored["draws"]

    @functools.cached_property
    def log_densities_and_scores(
        self,
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n d"]]:
        """Log density and score of every particle, from one pass over all data."""
        if not self._has_scores:
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
    def _has_scores(self) -> bool:
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

    def summary(
        self, quantiles: Sequence[float] = (0.05, 0.5, 0.95), *, mc_error: bool = True
    ) -> Summary:
        """Mean, standard deviation, error of the mean and quantiles of every scalar in `draws`.

        The error (`mc_error`) takes into account that particles interact. It needs one gradient per
        particle on all data: pass `mc_error=False` where that takes too long. Where all data cannot
        be read again it is left out.
        """
        scores = self.log_densities_and_scores[1] if mc_error and self._has_scores else None
        return summarise(self.draws, scores, self.num_kept, quantiles)

    def diagnose(self, *, num_replicates: int = 0) -> Diagnosis:
        """Did it work? A verdict in words, with its measures; `print` shows both.

        The verdict is "converged", "not yet", "variance too small", "multimodal disagreement" or
        "diverged". It rests on the particles' scores, from all data: identities that hold for
        draws of the target, the Stein discrepancy of a witness that is tested on particles which
        it has not seen, and the kernelised one (see `docs/diagnostics.md` for what they can and
        cannot see).

        Arguments:
            num_replicates: further runs from other starts, as long as this one, to compare with:
                what a single ensemble cannot know is that there is another mode.
        """
        check_count("num_replicates", num_replicates, minimum=0)
        replicates: list[np.ndarray] = []
        if num_replicates:
            rerun = self._known_rerun("num_replicates")
            replicates = [rerun.replicate(i + 1) for i in range(num_replicates)]
        return diagnose(
            np.asarray(self.particles),
            lambda: self.log_densities_and_scores,
            self.history,
            status=self.status,
            num_kept=self.num_kept,
            num_steps=self.num_steps,
            method=self.method,
            names=self._coordinate_names(),
            replicates=replicates,
        )

    def _known_rerun(self, purpose: str) -> AbstractRerun:
        if self.rerun is None:
            raise InputError(
                f"{purpose} runs the sampler again, which only a posterior can that nvgd.sample "
                "has just returned, not one that was loaded from a file."
            )
        return self.rerun

    def _coordinate_names(self) -> Sequence[str]:
        if self.target is not None:
            return self.target.coordinate_names()
        return [f"x[{i}]" for i in range(self.particles.shape[1])]

    def sample(self, num_draws: int, *, num_steps: int = 200, seed: int = 0) -> "Posterior":
        """Further draws: ends of chains that start at the particles.

        The chains are those of the corrections at the end of a default run: they keep the target
        exactly, so that draws are at least as good as the particles they start from, and after
        `num_steps` they have mostly forgotten them. One gradient per draw and step. Not with
        minibatches, whose log densities are only estimates.

        Arguments:
            num_draws: how many chains, and draws; particles are used several times if need be.
            num_steps: length of the chains. The first half adapts.
            seed: the same seed gives the same draws.
        """
        check_count("num_draws", num_draws)
        check_count("num_steps", num_steps)
        check_seed(seed)
        rerun = self._known_rerun("sample")
        draws = rerun.continue_chains(self.particles, int(num_draws), int(num_steps), int(seed))
        return dataclasses.replace(
            self,
            particles=draws,
            history={},
            metrics={},
            num_kept=1,
            state=None,
            rerun=None,
        )

    def predict(self, *args: Any, seed: int = 0, **kwargs: Any) -> dict[str, Array]:
        """New data, one draw for every particle.

        For a NumPyro model, with its own arguments or with others (leave what is to be predicted
        unobserved); for a PyMC model, with its data as they are now; for a `Target` of your own, by
        the function in `Target(..., model=nvgd.Model(predict=...))`.
        """
        check_seed(seed)
        target = self.known_target("predict")
        positions = jax.vmap(target.structure)(self.particles)
        predicted = target.model.predict(jax.random.key(seed), positions, *args, **kwargs)
        if predicted is None:
            raise InputError(
                "this target cannot predict: pass Target(..., model=nvgd.Model(predict=lambda "
                "position, key, ...: ...))."
            )
        return predicted

    def to_arviz(self, *, predictive: bool = True, seed: int = 0) -> Any:
        """The posterior as the installed ArviZ takes it; `.to_netcdf(path)` writes it to a file.

        With ArviZ 1.x, or `arviz-base` alone, an `xarray.DataTree`; with ArviZ 0.x an
        `arviz.InferenceData`. Groups: posterior, sample_stats (`lp`, the log density in
        unconstrained space), and where the model gives them log_likelihood, observed_data and
        posterior_predictive. The particles are the draws of one chain; in a thinned run each
        particle is a chain.

        Arguments:
            predictive: draw new data for posterior_predictive, with this `seed`.
        """
        from nvgd.posterior.arviz import to_arviz

        return to_arviz(
            self.draws,
            self.log_densities_and_scores[0] if self._has_scores else None,
            self.target,
            self.particles,
            num_kept=self.num_kept,
            labels=self.labels,
            attributes={name: getattr(self, name) for name in ("method", "num_steps", "status")},
            seed=seed if predictive else None,
        )

    def plot(
        self, kind: str = "marginals", names: Sequence[str] | None = None, *, narrow: bool = False
    ) -> "Figure":
        """A figure of the draws or of the run; `figure.savefig("name.png")` writes it.

        Arguments:
            kind: "marginals", "pairs" (of the first few scalars) or "history".
            names: of the draws to show; all if omitted.
            narrow: fewer panels side by side, for a narrow page.
        """
        from nvgd.posterior import plots

        check_choice("kind", kind, (*plots.OF_DRAWS, "history"))
        if kind == "history":
            return plots.history(self.history, self.metrics, narrow=narrow)
        check_names("names", names or (), self.draws)
        chosen = {name: self.draws[name] for name in names or self.draws}
        return plots.OF_DRAWS[kind](chosen, narrow=narrow)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything but the target to one file, without pickle; `nvgd.load` reads it.

        The file is readable by `numpy.load`: arrays `particles`, `log_densities` and `scores`
        (unless all data cannot be read again), `draws/…`, `history/…` and `metrics/…`.
        """
        dims, coords = self.labels
        facts = {
            **{name: getattr(self, name) for name in _FACTS},
            "stages": [list(stage) for stage in self.stages],
            "dims": {name: list(axes) for name, axes in dims.items()},
            "coords": {name: np.asarray(values).tolist() for name, values in coords.items()},
        }
        arrays = {"particles": np.asarray(self.particles)}
        if self._has_scores:
            arrays["log_densities"], arrays["scores"] = self.log_densities_and_scores
        for group in _GROUPS:
            values = getattr(self, group)
            arrays |= {f"{group}/{name}": np.asarray(value) for name, value in values.items()}
        path = Path(path)
        if not path.parent.is_dir():
            raise InputError(f"path must lie in a directory that exists, got {str(path)!r}.")
        write_archive(path, KIND, facts, arrays)

    def __repr__(self) -> str:
        shapes = jax.tree.map(lambda leaf: leaf.shape[1:], self.draws)
        return (
            f"Posterior({self.method}, {len(self.particles)} particles, draws={shapes}, "
            f"{self.num_steps} steps, {self.status})"
        )


# What a file holds: plain values, and groups of arrays.
_FACTS = ("status", "num_kept", "method", "num_steps")
_GROUPS = ("draws", "history", "metrics")


def load(path: str | os.PathLike[str], target: Target | None = None) -> Posterior:
    """A posterior that `Posterior.save` wrote.

    Arguments:
        target: what was sampled, if the posterior is to predict or to be compared with its model;
            draws, summary, plots and history do not need it.
    """
    facts, arrays = read_archive(Path(path), KIND)
    groups: dict[str, dict[str, Any]] = {group: {} for group in _GROUPS}
    for name, values in arrays.items():
        group, _, rest = name.partition("/")
        if group in groups:
            groups[group][rest] = values
    particles = jnp.asarray(arrays["particles"])
    if target is not None:
        check_kind("target", target, Target, "Target(log_density, dim=2)")
        if target.dim != particles.shape[1]:
            raise InputError(
                f"target has {target.dim} coordinates, but {str(path)!r} holds particles with "
                f"{particles.shape[1]}."
            )
    stored = {
        "draws": {name: jnp.asarray(values) for name, values in groups.pop("draws").items()},
        "labels": Labels(facts.pop("dims"), facts.pop("coords")),
        **{name: arrays[name] for name in ("log_densities", "scores") if name in arrays},
    }
    stages = tuple(StageRecord(*stage) for stage in facts.pop("stages", ()))
    return Posterior(particles, **groups, **facts, stages=stages, target=target, stored=stored)
