"""Neural Variational Gradient Descent: sample a posterior along a learned gradient flow."""

import importlib
from typing import TYPE_CHECKING, Any

from nvgd.checkpoints import CheckpointFailed, CheckpointRefused
from nvgd.coordinates import Adaptive, Curved, Diagonal, Identity, Preconditioned, Whitened
from nvgd.data import BatchStream
from nvgd.diagnostics import Diagnosis
from nvgd.directions import (
    Annealed,
    Cycles,
    Halves,
    KernelDirection,
    LangevinDirection,
    LangevinFraction,
    LearnedPower,
    NeuralDirection,
    Projected,
    ResidualDirection,
    SelfRepulsive,
    StochasticStein,
)
from nvgd.divergences import ExactDivergence, HutchinsonDivergence
from nvgd.errors import InputError, MissingExtraError
from nvgd.flow import FlowInfo, FlowState, ParticleFlow
from nvgd.kernels import IMQ, RBF
from nvgd.laplace import Laplace
from nvgd.methods import NVGD, SGLD, SVGD, ULA
from nvgd.models import Model
from nvgd.movers import (
    Capped,
    Euler,
    Metropolis,
    Momentum,
    NoiseAware,
    Optax,
    Resampled,
    polynomial_decay,
)
from nvgd.posterior import Posterior, load
from nvgd.regularisers import PowerNorm, QuadraticForm
from nvgd.sampling import NoRest, RunStopped, sample
from nvgd.sharding import device_mesh
from nvgd.starts import Jittered
from nvgd.stein import (
    divergence,
    regularised_stein_discrepancy,
    stein_discrepancy,
    stein_operator,
)
from nvgd.target import Target
from nvgd.weights import Weighted
from nvgd.witnesses import MLP

if TYPE_CHECKING:
    from nvgd import densities, metrics
    from nvgd.exact import MALA, MetropolisNVGD
    from nvgd.frontends import from_numpyro, from_pymc, to_blackjax
    from nvgd.information import fisher_information, hessian_information
    from nvgd.transport import Transport, learn_transport

__version__ = "0.1.0"

# What few programs need is imported when it is first asked for: name → module.
_ON_DEMAND = {
    "MALA": "nvgd.exact",
    "MetropolisNVGD": "nvgd.exact",
    "Transport": "nvgd.transport",
    "densities": "nvgd.densities",
    "fisher_information": "nvgd.information",
    "from_numpyro": "nvgd.frontends",
    "from_pymc": "nvgd.frontends",
    "hessian_information": "nvgd.information",
    "learn_transport": "nvgd.transport",
    "metrics": "nvgd.metrics",
    "to_blackjax": "nvgd.frontends",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'nvgd' has no attribute {name!r}")
    home = _ON_DEMAND[name]
    module = importlib.import_module(home)
    return module if home == f"nvgd.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})


__all__ = [
    "IMQ",
    "MALA",
    "MLP",
    "NVGD",
    "RBF",
    "SGLD",
    "SVGD",
    "ULA",
    "Adaptive",
    "Annealed",
    "BatchStream",
    "Capped",
    "CheckpointFailed",
    "CheckpointRefused",
    "Curved",
    "Cycles",
    "Diagnosis",
    "Diagonal",
    "Euler",
    "ExactDivergence",
    "FlowInfo",
    "FlowState",
    "Halves",
    "HutchinsonDivergence",
    "Identity",
    "InputError",
    "Jittered",
    "KernelDirection",
    "LangevinDirection",
    "LangevinFraction",
    "Laplace",
    "LearnedPower",
    "Metropolis",
    "MetropolisNVGD",
    "MissingExtraError",
    "Model",
    "Momentum",
    "NeuralDirection",
    "NoRest",
    "NoiseAware",
    "Optax",
    "ParticleFlow",
    "Posterior",
    "PowerNorm",
    "Preconditioned",
    "Projected",
    "QuadraticForm",
    "Resampled",
    "ResidualDirection",
    "RunStopped",
    "SelfRepulsive",
    "StochasticStein",
    "Target",
    "Transport",
    "Weighted",
    "Whitened",
    "densities",
    "device_mesh",
    "divergence",
    "fisher_information",
    "from_numpyro",
    "from_pymc",
    "hessian_information",
    "learn_transport",
    "load",
    "metrics",
    "polynomial_decay",
    "regularised_stein_discrepancy",
    "sample",
    "stein_discrepancy",
    "stein_operator",
    "to_blackjax",
]
