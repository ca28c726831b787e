"""Every posterior by name: the development set, and the set that was not used in it.

POSTERIORS["diabetes_raw"](None).log_density
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import jax
import numpy as np

from benchmarks.posteriors import models_hierarchical, models_latent, models_regression
from benchmarks.posteriors.models_held_out import HELD_OUT
from benchmarks.posteriors.models_regression import uci_regression
from benchmarks.posteriors.posterior import BenchmarkPosterior, Builder, DataMissing
from nvgd import densities
from nvgd._support.errors import check_choice


def _of_density(name: str, description: str, density: Callable[[], densities.AbstractDensity]):
    """A builder from one of the library's own densities, which have exact draws."""

    def build(data_dir: Path | None) -> BenchmarkPosterior:
        del data_dir
        made = density()

        def draw(seed: int, num_draws: int) -> np.ndarray:
            return np.asarray(made.sample(jax.random.key(seed), num_draws))

        return BenchmarkPosterior(name, made.dim, description, made.log_density, draw)

    return build


def _correlated_gaussian() -> densities.Gaussian:
    """Neighbours correlated by 0.9, standard deviations from 0.3 to 3, means between −2 and 2."""
    index = np.arange(100)
    scales = np.geomspace(0.3, 3.0, 100)
    correlation = 0.9 ** np.abs(index[:, None] - index)
    return densities.Gaussian(2 * np.sin(index), scales[:, None] * correlation * scales)


def _two_gaussians() -> densities.GaussianMixture:
    means = np.zeros((2, 5))
    means[0, 0], means[1, :3] = -2.0, (2.5, 1.0, -1.0)
    return densities.GaussianMixture(means, scales=(1.0, 0.6), weights=(0.6, 0.4))


POSTERIORS: dict[str, Builder] = {
    "gaussian_100": _of_density(
        "gaussian_100", "correlated Gaussian in R^100", _correlated_gaussian
    ),
    "banana": _of_density("banana", "banana in R^2", densities.Banana),
    "ring": _of_density("ring", "ring in R^2", densities.Ring),
    "two_gaussians": _of_density("two_gaussians", "two Gaussians in R^5", _two_gaussians),
    "funnel_10": _of_density("funnel_10", "Neal's funnel in R^10", lambda: densities.Funnel(10)),
    "eight_schools_centred": models_hierarchical.eight_schools,
    "eight_schools_non_centred": models_hierarchical.eight_schools_non_centred,
    "ar5": models_regression.autoregression,
    "diabetes_raw": models_regression.diabetes,
    "boston_raw": uci_regression("boston_raw", "bostonHousing"),
    "concrete_raw": uci_regression("concrete_raw", "concrete"),
    "yacht_raw": uci_regression("yacht_raw", "yacht"),
    "wine_raw": uci_regression("wine_raw", "wine_quality_red"),
    "energy_raw": uci_regression("energy_raw", "energy"),
    "power_raw": uci_regression("power_raw", "power_plant"),
    "radon_centred": models_hierarchical.radon,
    "breast_cancer": models_regression.breast_cancer,
    "breast_cancer_raw": models_regression.breast_cancer_raw,
    "mixture_model": models_latent.mixture_model,
    "poisson_centred": models_hierarchical.poisson_random_effects,
    "gaussian_process_whitened": models_latent.gaussian_process_whitened,
    "gaussian_process_centred": models_latent.gaussian_process,
    "stochastic_volatility": models_latent.stochastic_volatility,
}


ALL_HELD_OUT = "held_out"


def load(
    names: Iterable[str] | None = None, data_dir: Path | None = None
) -> list[BenchmarkPosterior]:
    """The posteriors with these names, or the development set; those without data are left out.

    The name `held_out` stands for all that were not used in the development.
    """
    builders = {**POSTERIORS, **HELD_OUT}
    wanted = list(POSTERIORS if names is None else names)
    if ALL_HELD_OUT in wanted:
        wanted = [*(name for name in wanted if name != ALL_HELD_OUT), *HELD_OUT]
    found = []
    for name in dict.fromkeys(wanted):
        check_choice("--only", name, builders)
        try:
            found.append(builders[name](data_dir))
        except DataMissing as error:
            print(f"{name} is left out: {error}")
    return found
