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

from nvgd.archives import read_archive, write_archive
from nvgd.diagnostics import Diagnosis, diagnose
from nvgd.errors import InputError, check_choice, check_count, check_kind, check_seed
from nvgd.flow import FlowState, ParticleFlow
from nvgd.models import Labels
from nvgd.modes import on_all_data
from nvgd.recipes import Recipe, known_recipe
from nvgd.summaries import Summary, summarise
from nvgd.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = "posterior"


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
        num_kept: how many states of a thinned run `particles` holds, one after the other; else 1.
        method: the flow's name.
        num_steps: steps behind the last particles.
        target, flow, state: what was sampled, how, and the state after the last good step, where
            `state.direction.witness` is NVGD's network; None in a posterior that was loaded
            without its target.
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
    state: FlowState | None = None
    recipe: Recipe | None = None
    """How it was made, for runs that repeat or replay it; None in a posterior that was loaded."""
    stored: dict[str, Any] | None = None
    """What a file held of the things that the target would give."""

    @property
    def completed(self) -> bool:
        """Whether every step asked for was taken."""
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
        """Log density and score of every particle, from all data; one pass over them."""
        if self.target is None:
            assert self.stored is not None
            return self.stored["log_densities"], self.stored["scores"]
        log_densities, scores = on_all_data(self.target, self.particles)
        return np.asarray(log_densities), np.asarray(scores)

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

        The error (`mc_error`) takes into account that particles interact (see
        `nvgd.summaries.errors_of_means`). It needs one gradient a particle on all data: pass
        `mc_error=False` where that takes too long.
        """
        scores = self.log_densities_and_scores[1] if mc_error else None
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
        return diagnose(self, num_replicates=num_replicates)

    def sample(
        self,
        num_draws: int,
        *,
        num_corrections: int | None = None,
        initial: Any = None,
        seed: int = 0,
    ) -> "Posterior":
        """Further draws: fresh starting points, pushed along the flow of this run.

        The run is taken once more, with the points beside it; they do not take part, so that the
        posterior stays what it is. That costs the run again, and a gradient a step for every draw.
        Then come `num_corrections` steps that are accepted or rejected (MALA), for the noise of
        fields that were made for others.

        In Langevin dynamics, where noise is part of the flow, every point gets its own: the draws
        are new chains. The same seed gives the same draws.

        Arguments:
            num_corrections: 50 if omitted, or as many as the run itself ended with; none in
                Langevin dynamics or with minibatches, where densities are not known to compare.
            initial: where points start, as for `nvgd.sample`; as the particles did if omitted.
        """
        from nvgd.replays import NUM_CORRECTIONS, carry, corrected

        check_count("num_draws", num_draws)
        check_seed(seed)
        recipe = known_recipe(self.recipe, "sample")
        if num_corrections is None:
            is_exact = recipe.target.batch_size is None and not recipe.flow.direction.noise_share
            num_corrections = max(NUM_CORRECTIONS, recipe.num_corrections) if is_exact else 0
        check_count("num_corrections", num_corrections, minimum=0)
        if initial is None:
            if not recipe.can_start_anew:
                raise InputError(
                    "sample needs fresh starting points, and this run started from particles of "
                    "your own: pass initial= with others, or with a way to draw them."
                )
            initial = recipe.initial
        points = carry(recipe, int(num_draws), initial, int(seed))
        if num_corrections:
            points = corrected(recipe.target, points, self.particles, num_corrections, int(seed))
        return dataclasses.replace(
            self,
            particles=points,
            history={},
            metrics={},
            num_kept=1,
            state=None,
            recipe=None,
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
        """The posterior as ArviZ's `DataTree`; `.to_netcdf(path)` writes it to a file.

        Groups: posterior, sample_stats (`lp`, the log density in unconstrained space), and where
        the model gives them log_likelihood, observed_data and posterior_predictive. The particles
        are the draws of one chain; in a thinned run each particle is a chain.

        Arguments:
            predictive: draw new data for posterior_predictive, with this `seed`.
        """
        from nvgd.arviz_output import to_arviz

        return to_arviz(self, predictive=predictive, seed=seed)

    def plot(self, kind: str = "marginals", names: Sequence[str] | None = None) -> "Figure":
        """A figure of the draws or of the run; `figure.savefig("name.png")` writes it.

        Arguments:
            kind: "marginals", "pairs" (of the first few scalars) or "history".
            names: of the draws to show; all if omitted.
        """
        from nvgd import plots

        check_choice("kind", kind, plots.KINDS)
        unknown = [name for name in names or () if name not in self.draws]
        if unknown:
            raise InputError(
                f"names must be among {', '.join(self.draws)}, got {', '.join(unknown)}."
            )
        chosen = {name: self.draws[name] for name in names or self.draws}
        return plots.KINDS[kind](self, chosen)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything but the target to one file, without pickle; `nvgd.load` reads it.

        The file is an archive as `nvgd.archives` describes it, readable by `numpy.load`: arrays
        `particles`, `log_densities`, `scores`, `draws/…`, `history/…` and `metrics/…`.
        """
        log_densities, scores = self.log_densities_and_scores
        dims, coords = self.labels
        facts = {
            **{name: getattr(self, name) for name in _FACTS},
            "dims": {name: list(axes) for name, axes in dims.items()},
            "coords": {name: np.asarray(values).tolist() for name, values in coords.items()},
        }
        arrays = {
            "particles": np.asarray(self.particles),
            "log_densities": log_densities,
            "scores": scores,
        }
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
        "log_densities": arrays["log_densities"],
        "scores": arrays["scores"],
        "labels": Labels(facts.pop("dims"), facts.pop("coords")),
    }
    return Posterior(particles, **groups, **facts, target=target, stored=stored)
