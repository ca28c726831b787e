"""Neural Variational Gradient Descent: sample a posterior along a learned gradient flow."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING

from nvgd import coordinates as coordinates
from nvgd import directions as directions
from nvgd import movers as movers
from nvgd import stein as stein
from nvgd._support.devices import device_mesh
from nvgd._support.errors import (
    CheckpointWarning,
    InputError,
    MissingExtraError,
    NotConvergedWarning,
    RunStoppedWarning,
)
from nvgd._support.version import __version__ as __version__
from nvgd.flow.methods import MALA, NVGD, SGLD, SVGD, ULA
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.posterior.diagnostics.diagnosis import Diagnosis
from nvgd.posterior.files import load
from nvgd.posterior.posterior import Posterior
from nvgd.running.pathfinder import Laplace
from nvgd.running.sampling import sample
from nvgd.running.starts import Jittered
from nvgd.targets.host_data import BatchStream
from nvgd.targets.models import Model
from nvgd.targets.target import Target

if _TYPE_CHECKING:
    from nvgd import densities, metrics, networks
    from nvgd import sklearn as sklearn
    from nvgd.frontends.blackjax import to_blackjax
    from nvgd.frontends.networks.from_network import from_network
    from nvgd.frontends.numpyro import from_numpyro
    from nvgd.frontends.pymc import from_pymc
    from nvgd.posterior.transport import learn_transport
    from nvgd.running.simulation_calibration import simulation_based_calibration

# Names that few programs need, imported on first use: name → module.
_ON_DEMAND = {
    "densities": "nvgd.densities",
    "from_network": "nvgd.frontends.networks.from_network",
    "from_numpyro": "nvgd.frontends.numpyro",
    "from_pymc": "nvgd.frontends.pymc",
    "learn_transport": "nvgd.posterior.transport",
    "metrics": "nvgd.metrics",
    "networks": "nvgd.networks",
    "simulation_based_calibration": "nvgd.running.simulation_calibration",
    "sklearn": "nvgd.sklearn",
    "to_blackjax": "nvgd.frontends.blackjax",
}

__all__ = [
    "MALA",
    "NVGD",
    "SGLD",
    "SVGD",
    "ULA",
    "BatchStream",
    "CheckpointWarning",
    "Diagnosis",
    "InputError",
    "Jittered",
    "Laplace",
    "MissingExtraError",
    "Model",
    "NotConvergedWarning",
    "ParticleFlow",
    "Posterior",
    "RunStoppedWarning",
    "Target",
    "densities",
    "device_mesh",
    "from_network",
    "from_numpyro",
    "from_pymc",
    "learn_transport",
    "load",
    "metrics",
    "networks",
    "sample",
    "simulation_based_calibration",
    "to_blackjax",
]

# Submodules with the parts of a flow.
_SUBMODULES = ("coordinates", "directions", "movers", "sklearn", "stein")


def __getattr__(name: str) -> object:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'nvgd' has no attribute {name!r}")
    home = _ON_DEMAND[name]
    module = _importlib.import_module(home)
    return module if home == f"nvgd.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES, "__version__"})
