"""The figures that `Posterior.plot` draws, by kind."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from nvgd._support.errors import InputError
from nvgd.posterior import plots
from nvgd.posterior.history_plot import history
from nvgd.posterior.palette import colour_of
from nvgd.posterior.predictive_plot import predict_observed, predictive

KINDS = ("marginals", "pairs", "history", "predictive")


def draw(posterior: Any, kind: str, names: Sequence[str] | None, narrow: bool) -> Figure:
    """See `Posterior.plot`.

    Arguments:
        posterior: a `Posterior`; not imported here, because its module imports this one.
    """
    colour = colour_of(posterior.method)
    if kind == "history":
        recorded, metrics = posterior.history, posterior.metrics
        return history(recorded, metrics, posterior.stages, colour=colour, narrow=narrow)
    if kind == "predictive":
        target = posterior.known_target("the predictive plot")
        found = predict_observed(target, posterior.flat_positions)
        if not found:
            raise InputError(
                "the predictive plot needs a model with observed data that can predict new "
                "ones, as NumPyro and PyMC models do."
            )
        return predictive(found, colour=colour, narrow=narrow)
    # Pairs of deterministic variables would show what defines them.
    derived = posterior.deterministics if kind == "pairs" else ()
    default = [name for name in posterior.ordered_names if name not in derived]
    chosen = {name: posterior.draws[name] for name in names or default}
    plot = plots.marginals if kind == "marginals" else plots.pairs
    return plot(chosen, labels=posterior.labels, colour=colour, narrow=narrow)
