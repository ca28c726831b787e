"""The targets of Google's Inference Gym that need no download.

Left out are:
- German credit (logistic, sparse logistic and probit regression) and radon in Minnesota and
  Indiana, whose data TensorFlow Datasets would download; their models run on synthetic data here;
- `StochasticVolatility…`, the same posteriors as their vectorised forms, but slower;
- `SyntheticPlasmaSpectroscopy`, whose log density is discontinuous, and its form `WithBump`, which
  has several modes and no shipped moments, so that no run of NUTS could be its reference;
- the classes that take data of one's own (`LogisticRegression`, …), except as said above.
"""

import dataclasses
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import nvgd
from benchmarks.inference_gym import brownian_motion
from nvgd._support.errors import check_choice

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import inference_gym.using_jax as gym  # pyright: ignore[reportMissingImports]
    from inference_gym.internal.datasets.brownian_motion_missing_middle_observations import (  # pyright: ignore[reportMissingImports]
        OBSERVED_LOC,
    )

# The log-Gaussian Cox process asks for double precision and gets what the run uses.
warnings.filterwarnings("ignore", message="Explicitly requested dtype")

# Of the models that come without data: as many rows and features as German credit.
NUM_ROWS, NUM_FEATURES = 1000, 24
NUM_COUNTIES, NUM_HOUSES = 30, 400
SEED = 20_240_501
BROWNIAN_MOTION = "brownian_motion_unknown_scales"


@dataclasses.dataclass(frozen=True)
class Truth:
    """Moments of every constrained scalar."""

    mean: Float[np.ndarray, " k"]
    sd: Float[np.ndarray, " k"]
    error: float
    """Root mean square, over scalars, of the standard error of `mean` in units of `sd`."""


@dataclasses.dataclass(frozen=True)
class GymTarget:
    """A target of the Inference Gym in unconstrained space."""

    name: str
    dim: int
    log_density: Callable[[Float[Array, " d"]], Float[Array, ""]]
    constrain: Callable[[Float[Array, " d"]], Float[Array, " k"]]
    """From an unconstrained position to the gym's `identity` transformation, flattened."""
    truth: Truth | None
    """As the gym ships it, or by quadrature; None if it is to be made by NUTS."""

    def for_nvgd(self) -> nvgd.Target:
        """The target as `nvgd.sample` takes it; the constrained scalars are the vector `x`."""
        constrain = self.constrain
        return nvgd.Target(self.log_density, dim=self.dim, constrain=lambda z: {"x": constrain(z)})


def load(names: Iterable[str] | None = None) -> list[GymTarget]:
    """The targets with these names, or all."""
    names = list(MODELS) if names is None else list(names)
    for name in names:
        check_choice("--only", name, MODELS)
    return [_flat(name, MODELS[name]()) for name in names]


def _flat(name: str, model: Any) -> GymTarget:
    flat = gym.targets.VectorModel(model, flatten_sample_transformations=True)
    bijector = flat.default_event_space_bijector
    identity = flat.sample_transformations["identity"]

    def log_density(z: Float[Array, " d"]) -> Float[Array, ""]:
        # The gym's models compute in single precision, whatever the precision of the sampler.
        x = z.astype(jnp.float32)
        value = flat.unnormalized_log_prob(bijector.forward(x))
        log_jacobian = bijector.forward_log_det_jacobian(x, event_ndims=1)
        return (value + log_jacobian).astype(z.dtype)

    def constrain(z: Float[Array, " d"]) -> Float[Array, " k"]:
        return identity(bijector.forward(z.astype(jnp.float32))).astype(z.dtype)

    dim = int(bijector.inverse_event_shape(flat.event_shape)[0])
    mean, sd = identity.ground_truth_mean, identity.ground_truth_standard_deviation
    truth = None
    if name == "quartic":
        truth = _quartic_truth(log_density)
    elif name == BROWNIAN_MOTION:
        exact = brownian_moments()
        truth = Truth(exact.mean, exact.sd, 0.0)
    elif mean is not None and sd is not None:
        mean, sd = np.asarray(mean, np.float64), np.asarray(sd, np.float64)
        error = identity.ground_truth_mean_standard_error
        errors = np.zeros_like(sd) if error is None else np.asarray(error, np.float64) / sd
        truth = Truth(mean, sd, float(np.sqrt(np.mean(errors**2))))
    return GymTarget(name, dim, log_density, constrain, truth)


def brownian_moments() -> brownian_motion.Moments:
    """Moments of the Brownian motion with unknown scales."""
    return brownian_motion.moments(np.asarray(OBSERVED_LOC, np.float64))


def _quartic_truth(log_density: Callable[[Array], Array]) -> Truth:
    """Moments in two dimensions, by quadrature; the gym has only the means."""
    line = jnp.linspace(-4.0, 4.0, 3201)
    log_densities = jax.jit(
        jax.vmap(lambda x: jax.vmap(lambda y: log_density(jnp.stack([x, y])))(line))
    )
    weights = np.exp(np.asarray(log_densities(line), np.float64))
    squares = np.asarray(line, np.float64) ** 2
    marginals = weights.sum(axis=1), weights.sum(axis=0)
    sd = [np.sqrt(marginal @ squares / marginal.sum()) for marginal in marginals]
    return Truth(np.zeros(2), np.array(sd), 0.0)


def _regression_data() -> dict[str, np.ndarray]:
    """Correlated features, and labels that depend on a quarter of them."""
    rng = np.random.default_rng(SEED)
    mixing = rng.normal(size=(NUM_FEATURES, NUM_FEATURES)) / NUM_FEATURES**0.5
    features = rng.normal(size=(NUM_ROWS, NUM_FEATURES)) @ (np.eye(NUM_FEATURES) + mixing)
    features /= features.std(axis=0)
    weights = np.where(np.arange(NUM_FEATURES) % 4 == 0, rng.normal(size=NUM_FEATURES), 0.0)
    labels = rng.random(NUM_ROWS) < 1 / (1 + np.exp(-(features @ weights - 0.5)))
    return {
        "train_features": features.astype(np.float32),
        "train_labels": labels.astype(np.int32),
    }


def _radon_data() -> dict[str, Any]:
    """Houses in counties of very different sizes."""
    rng = np.random.default_rng(SEED)
    shares = rng.dirichlet(np.ones(NUM_COUNTIES))
    county = np.concatenate(
        [np.arange(NUM_COUNTIES), rng.choice(NUM_COUNTIES, NUM_HOUSES - NUM_COUNTIES, p=shares)]
    )
    floor = (rng.random(NUM_HOUSES) < 0.2).astype(np.int32)
    mean_floor = np.bincount(county, floor) / np.bincount(county)
    log_uranium = rng.normal(0, 0.4, NUM_COUNTIES)[county]
    effect = rng.normal(1.4, 0.15, NUM_COUNTIES)[county]
    mean = effect + 0.7 * log_uranium - 0.65 * floor + 0.4 * mean_floor[county]
    return {
        "num_counties": NUM_COUNTIES,
        "train_log_uranium": log_uranium.astype(np.float32),
        "train_floor": floor,
        "train_county": county.astype(np.int32),
        "train_floor_by_county": mean_floor[county].astype(np.float32),
        "train_log_radon": rng.normal(mean, 0.7).astype(np.float32),
        "prior_scale": "halfnormal",
    }


_TARGETS = gym.targets
MODELS: dict[str, Callable[[], Any]] = {
    "banana": _TARGETS.Banana,
    "neals_funnel": _TARGETS.NealsFunnel,
    "quartic": _TARGETS.NonIdentifiableQuarticMeasurementModel,
    "ill_conditioned_gaussian": _TARGETS.IllConditionedGaussian,
    "eight_schools": _TARGETS.EightSchools,
    "brownian_motion": _TARGETS.BrownianMotionMissingMiddleObservations,
    BROWNIAN_MOTION: _TARGETS.BrownianMotionUnknownScalesMissingMiddleObservations,
    "lorenz_bridge": _TARGETS.ConvectionLorenzBridge,
    "lorenz_bridge_unknown_scales": _TARGETS.ConvectionLorenzBridgeUnknownScales,
    "logistic_regression": lambda: _TARGETS.LogisticRegression(**_regression_data()),
    "probit_regression": lambda: _TARGETS.ProbitRegression(**_regression_data()),
    "sparse_logistic_regression": lambda: _TARGETS.SparseLogisticRegression(**_regression_data()),
    "radon": lambda: _TARGETS.RadonContextualEffects(**_radon_data()),
    "stochastic_volatility_small": _TARGETS.VectorizedStochasticVolatilitySP500Small,
    "stochastic_volatility_log_small": _TARGETS.VectorizedStochasticVolatilityLogSP500Small,
    "log_gaussian_cox": _TARGETS.SyntheticLogGaussianCoxProcess,
    "item_response": _TARGETS.SyntheticItemResponseTheory,
    "stochastic_volatility": _TARGETS.VectorizedStochasticVolatilitySP500,
    "stochastic_volatility_log": _TARGETS.VectorizedStochasticVolatilityLogSP500,
}
