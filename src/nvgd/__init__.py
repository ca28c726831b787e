"""Neural Variational Gradient Descent: sample a posterior along a learned gradient flow."""

from nvgd import densities, metrics
from nvgd.checkpoints import CheckpointRefused
from nvgd.coordinates import Adaptive, Diagonal, Identity
from nvgd.data import BatchStream
from nvgd.directions import (
    KernelDirection,
    LangevinDirection,
    NeuralDirection,
    ResidualDirection,
)
from nvgd.divergences import ExactDivergence, HutchinsonDivergence
from nvgd.errors import InputError, MissingExtraError
from nvgd.flow import NVGD, SGLD, SVGD, ULA, FlowInfo, FlowState, ParticleFlow
from nvgd.frontends import from_numpyro, from_pymc, to_blackjax
from nvgd.kernels import IMQ, RBF
from nvgd.laplace import Laplace
from nvgd.models import Model
from nvgd.movers import Capped, Euler, Optax, polynomial_decay
from nvgd.posterior import Posterior, load
from nvgd.sampling import RunStopped, sample
from nvgd.starts import Jittered
from nvgd.stein import (
    divergence,
    regularised_stein_discrepancy,
    stein_discrepancy,
    stein_operator,
)
from nvgd.target import Target
from nvgd.witnesses import MLP

__version__ = "0.1.0"

__all__ = [
    "IMQ",
    "MLP",
    "NVGD",
    "RBF",
    "SGLD",
    "SVGD",
    "ULA",
    "Adaptive",
    "BatchStream",
    "Capped",
    "CheckpointRefused",
    "Diagonal",
    "Euler",
    "ExactDivergence",
    "FlowInfo",
    "FlowState",
    "HutchinsonDivergence",
    "Identity",
    "InputError",
    "Jittered",
    "KernelDirection",
    "LangevinDirection",
    "Laplace",
    "MissingExtraError",
    "Model",
    "NeuralDirection",
    "Optax",
    "ParticleFlow",
    "Posterior",
    "ResidualDirection",
    "RunStopped",
    "Target",
    "densities",
    "divergence",
    "from_numpyro",
    "from_pymc",
    "load",
    "metrics",
    "polynomial_decay",
    "regularised_stein_discrepancy",
    "sample",
    "stein_discrepancy",
    "stein_operator",
    "to_blackjax",
]
