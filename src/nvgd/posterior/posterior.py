"""The result of a run."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nvgd._support.errors import (
    InputError,
    check_callable,
    check_choice,
    check_count,
    check_names,
    check_seed,
)
from nvgd.posterior.diagnostics.data_used import data_used
from nvgd.posterior.diagnostics.diagnose import diagnose
from nvgd.posterior.diagnostics.diagnosis import Diagnosis
from nvgd.posterior.expectations import Expectation, expectation
from nvgd.posterior.record import RunRecord
from nvgd.posterior.saving import save
from nvgd.posterior.summary import Summary, independent_groups, scalar_names, summarise
from nvgd.targets.row_passes import faulty_row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, repr=False)
class Posterior(RunRecord):
    """The result of `sample`: draws by name, with summaries, plots, predictions and a diagnosis.

    `draws` are in constrained space, one array of shape (chain, draw, …) per name; `particles` are
    flat and unconstrained. `RunRecord` lists the other attributes.

    Examples:
        >>> posterior = nvgd.sample(nvgd.densities.Banana().log_density, dim=2)
        >>> posterior.draws["x"].shape[2:]
        (2,)
        >>> list(posterior.summary()["mean"])
        ['x[0]', 'x[1]']
        >>> posterior.diagnose().verdict
        'converged'
        >>> share = posterior.expectation(lambda draw: draw["x"][0] > 0)
        >>> bool(abs(share.mean - 0.5) < 0.1)
        True
        >>> posterior.sample(100).draws["x"].shape
        (1, 100, 2)
        >>> figure = posterior.plot("pairs")
    """

    def summary(
        self,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        *,
        var_names: Sequence[str] | None = None,
        hdi: float | None = None,
        deterministics: bool = True,
        mc_error: bool = True,
    ) -> Summary:
        """Mean, standard deviation, error of the mean and quantiles of every scalar in `draws`.

        Means and standard deviations use control variates made of the scores, where these reduce
        the error (`expectation`). Rows are named by the model's coordinates, if it has any.

        Arguments:
            quantiles: levels of the quantiles, between 0 and 1.
            var_names: names of the draws to summarise; all if omitted.
            hdi: probability of the highest-density interval, the narrowest one that holds it, such
                as 0.9; no such interval if omitted.
            deterministics: whether to include deterministic variables of a NumPyro or PyMC model
                that `var_names` does not name.
            mc_error: whether to use scores, for the errors and for control variates. Without
                corrections they need one gradient per particle on all data. Errors are NaN if
                False, or if all data cannot be read again.
        """
        check_names("var_names", () if var_names is None else var_names, self.draws)
        derived = () if deterministics else self.deterministics
        names = var_names or [name for name in self.ordered_names if name not in derived]
        chosen = {name: self.draws[name] for name in names}
        scores = self.flat_scores if mc_error else None
        return summarise(
            chosen,
            self.flat_positions,
            scores,
            quantiles,
            hdi,
            self.labels,
            density_error=self.density_error,
        )

    def expectation(self, function: Callable[[dict[str, Array]], Any]) -> Expectation:
        """The posterior mean of a function of the parameters, with its standard error.

            posterior.expectation(lambda draw: draw["a"] > draw["b"])

        The scores at the draws are known and have mean zero, and so have products of scores and
        positions. What these explain of the function's fluctuation is subtracted (control variates;
        Oates, Girolami and Chopin, 2017), if that reduces the estimated error.

        Arguments:
            function: maps one draw, a dictionary like `draws` without the leading axes, to a number
                or array; written with `jax.numpy`.
        """
        check_callable("function", function)
        flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in self.draws.items()}
        num_chains, num_draws = next(iter(self.draws.values())).shape[:2]
        groups = independent_groups(num_chains, num_draws)
        return expectation(
            function,
            flat,
            self.flat_positions,
            self.flat_scores,
            groups,
            density_error=self.density_error,
        )

    def diagnose(self, *, num_replicates: int = 0) -> Diagnosis:
        """Check whether the run worked; `print` shows the verdict and its measures.

        The verdict is "converged", "not yet", "variance too small", "multimodal disagreement",
        "diverged" or "improper". It is based on R-hat of the chains, if corrections ran, and on the
        scores of the draws from all data: identities that hold under the target, the Stein
        discrepancy of a witness on held-out draws, and the kernelised Stein discrepancy
        (`docs/how-it-works/diagnosis.md` says what they can and cannot detect). With minibatches,
        it says which rows the log density came from, and which it reads itself.

        Arguments:
            num_replicates: number of further runs, of the same length but from other initial
                particles, to compare with. A single ensemble cannot detect modes that it missed.
        """
        check_count("num_replicates", num_replicates, minimum=0)
        replicates: list[np.ndarray] = []
        if num_replicates:
            if self.replicate is None:
                raise InputError(
                    "num_replicates runs the sampler again, which is possible only for a posterior "
                    "that nvgd.sample returned, not for one that was loaded from a file."
                )
            replicates = [self.replicate(i + 1) for i in range(num_replicates)]
        return diagnose(
            np.asarray(self.particles),
            self.chains,
            lambda: self.log_densities_and_scores,
            self.draws,
            self.history,
            status=self.status,
            notes=(*self.notes, *self._data_used()),
            num_kept=self.num_kept,
            num_steps=self.num_steps,
            method=self.method,
            names=self._coordinate_names(),
            labels=self.labels,
            replicates=replicates,
            density_error=self.density_error,
            faulty_row=self._faulty_row,
        )

    def _faulty_row(self) -> int | None:
        return None if self.target is None else faulty_row(self.target, self.particles[0])

    def _data_used(self) -> tuple[str, ...]:
        has_chains = self.chains is not None
        return data_used(self.target, self.history, len(self.particles), has_chains=has_chains)

    def _coordinate_names(self) -> Sequence[str]:
        """Names of the flat position's coordinates, labelled where a draw has the same name."""
        if self.target is None:
            return [f"x[{i}]" for i in range(self.particles.shape[1])]
        numbered, labelled = (scalar_names(self.draws, labels) for labels in (None, self.labels))
        known = dict(zip(numbered, labelled, strict=True))
        return [known.get(name, name) for name in self.target.coordinate_names()]

    def sample(self, num_draws: int, *, seed: int = 0) -> "Posterior":
        """Further draws, by continuing the chains of the corrections.

        The chains go on from their last states until they have forgotten them, and longer if there
        are more draws than chains. Nothing is compiled anew.

        Arguments:
            num_draws: number of draws, which the new posterior holds as one chain.
            seed: the same seed gives the same draws.
        """
        check_count("num_draws", num_draws)
        check_seed(seed)
        if self.extend is None:
            raise InputError(
                "further draws continue the chains of a run's corrections, and this posterior has "
                "none: they need nvgd.sample with NVGD(), all data at once, and 500 steps or more, "
                "and are not stored in files."
            )
        chains = self.extend(int(num_draws), int(seed))
        return dataclasses.replace(
            self,
            particles=jnp.asarray(chains.positions[0]),
            chains=chains,
            history={},
            metrics={},
            num_kept=1,
            state=None,
            flow_state=None,
            replicate=None,
            extend=None,
        )

    def predict(self, *args: Any, seed: int = 0, **kwargs: Any) -> Any:
        """Posterior predictive data, with leading axes (chain, draw) as in `draws`.

        A NumPyro model predicts with its original arguments or with new ones; leave the sites to
        predict unobserved. A PyMC model predicts with its current data. Your own `Target` predicts
        with the function in `Target(..., model=nvgd.Model(predict=...))`. A network predicts for
        new rows, `predict(x)`, and returns a `networks.Prediction`, already averaged over draws.

        Arguments:
            args, kwargs: passed on to the model.
            seed: the same seed gives the same data.
        """
        check_seed(seed)
        target = self.known_target("predict")
        positions = jax.vmap(target.structure)(jnp.asarray(self.flat_positions))
        predicted = target.model.predict(jax.random.key(seed), positions, *args, **kwargs)
        if predicted is None:
            raise InputError(
                "this target cannot predict: pass Target(..., model=nvgd.Model(predict=lambda "
                "position, key, ...: ...))."
            )
        if not isinstance(predicted, dict):
            return predicted
        return {name: self.by_chain(values) for name, values in predicted.items()}

    def to_arviz(self, *, predictive: bool = True, seed: int = 0) -> Any:
        """Convert the posterior for the installed version of ArviZ.

        The result is an `xarray.DataTree` with ArviZ 1.x or `arviz-base` alone, and an
        `arviz.InferenceData` with ArviZ 0.x; `.to_netcdf(path)` writes it to a file. The groups are
        posterior, sample_stats (`lp`, the log density in unconstrained space) and, if the model
        provides them, log_likelihood, observed_data and posterior_predictive, with chains and draws
        as in `draws`.

        Arguments:
            predictive: whether to draw new data for posterior_predictive.
            seed: seed of these draws.
        """
        from nvgd.posterior.arviz import to_arviz

        return to_arviz(
            self.draws,
            self.flat_log_densities,
            self.target,
            jnp.asarray(self.flat_positions),
            by_chain=self.by_chain,
            labels=self.labels,
            attributes={name: getattr(self, name) for name in ("method", "num_steps", "status")},
            seed=seed if predictive else None,
        )

    def plot(
        self, kind: str = "marginals", names: Sequence[str] | None = None, *, narrow: bool = False
    ) -> "Figure":
        """A figure of the draws or of the run; `figure.savefig("name.png")` writes it.

        Arguments:
            kind: "marginals", "pairs" (of the scalars that matter most), "history", or "predictive"
                (predicted beside observed data, if the model has both).
            names: names of the draws to show; all if omitted.
            narrow: whether to use fewer panels per row, for a narrow page.
        """
        from nvgd.posterior import figures

        check_choice("kind", kind, figures.KINDS)
        check_names("names", names or (), self.draws)
        return figures.draw(self, kind, names, narrow)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write draws, chains, history, metrics and scores to one file, which `nvgd.load` reads.

        The file contains no pickle and is readable by `numpy.load`. Its arrays are `particles`,
        `log_densities` and `scores` (unless all data cannot be read again), `draws/…`, `chains/…`,
        `history/…` and `metrics/…`.
        """
        save(self, path)

    def __repr__(self) -> str:
        shapes = jax.tree.map(lambda leaf: leaf.shape[2:], self.draws)
        return (
            f"Posterior({self.method}, {len(self.particles)} particles, draws={shapes}, "
            f"{self.num_steps} steps, {self.status})"
        )
