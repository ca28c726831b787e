"""The posteriors of this benchmark, by name, and their data for PyMC."""

import inspect
from typing import Any

from benchmarks.posteriors import models_hierarchical
from benchmarks.posteriors.models import POSTERIORS
from benchmarks.posteriors.posterior import BenchmarkPosterior
from benchmarks.startup.hidden_markov import hidden_markov
from nvgd import densities

# Two to 34 dimensions; log densities of one line, of a Cholesky factor, and of 300 steps in time.
DEFAULT = (
    "banana",
    "hidden_markov",
    "two_gaussians",
    "ar5",
    "funnel_10",
    "eight_schools_non_centred",
    "gaussian_process_whitened",
    "radon_centred",
)
NAMES = (*DEFAULT, *(name for name in POSTERIORS if name not in DEFAULT))
STANDARD_NORMAL = "standard_normal_"


def build(name: str) -> BenchmarkPosterior:
    """The posterior of this name; `standard_normal_5` is the standard normal in R^5."""
    if name.startswith(STANDARD_NORMAL):
        dim = int(name.removeprefix(STANDARD_NORMAL))
        return BenchmarkPosterior(name, dim, f"N(0, I) in R^{dim}", lambda x: -0.5 * x @ x)
    return hidden_markov() if name == "hidden_markov" else POSTERIORS[name](None)


def pymc_data(posterior: BenchmarkPosterior) -> dict[str, Any] | None:
    """What `pymc_models` needs to state this posterior; None if it has no PyMC model.

    Plain lists and numbers, because they reach another process as JSON: PyMC forks its chains,
    which a process that has started JAX must not do.
    """
    if posterior.name == "funnel_10":
        return {"dim": posterior.dim, "scale": densities.Funnel(posterior.dim).scale}
    if posterior.name == "eight_schools_non_centred":
        return {
            "effects": models_hierarchical.EFFECTS.tolist(),
            "errors": models_hierarchical.STANDARD_ERRORS.tolist(),
        }
    if posterior.name == "radon_centred":
        data = inspect.getclosurevars(posterior.log_density).nonlocals
        return {name: data[name].tolist() for name in ("county", "floor", "outcome")}
    return None
