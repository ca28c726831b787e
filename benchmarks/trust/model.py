"""A model of the benchmark, and how its reference draws are made."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import nvgd

# A function of NumPyro primitives, followed by its arguments.
NumPyroBuilder = Callable[[], tuple[Any, ...]]
PyMCBuilder = Callable[[], Any]


class Exact(NamedTuple):
    """Draws of the target itself, in random order."""

    draw: Callable[[np.random.Generator, int], dict[str, np.ndarray]]
    """Draws by name, with a leading axis, from a generator and their number."""


class NumPyroNUTS(NamedTuple):
    """NUTS on a NumPyro model that has the sites of the target, latent or deterministic."""

    build: NumPyroBuilder


class PyMCNUTS(NamedTuple):
    """NUTS on a PyMC model that has the variables of the target, free or deterministic."""

    build: PyMCBuilder


@dataclasses.dataclass(frozen=True)
class TrustModel:
    """A model as people write it, built when it is needed."""

    name: str
    description: str
    target: Callable[[], nvgd.Target]
    recipe: Exact | NumPyroNUTS | PyMCNUTS
    """How the reference draws are made."""


def in_numpyro(
    name: str, description: str, build: NumPyroBuilder, easy: NumPyroBuilder | None = None
) -> TrustModel:
    """A NumPyro model.

    Arguments:
        easy: the same posterior in a form that NUTS samples well, with the same names; the model
            itself if omitted.
    """
    return TrustModel(
        name, description, lambda: nvgd.from_numpyro(*build()), NumPyroNUTS(easy or build)
    )


def non_centred(build: NumPyroBuilder, site: str) -> NumPyroBuilder:
    """The same NumPyro model with a normal site in units of its scale, which NUTS samples well."""

    def easy() -> tuple[Any, ...]:
        from numpyro.handlers import reparam
        from numpyro.infer.reparam import LocScaleReparam

        model, *data = build()
        return reparam(model, config={site: LocScaleReparam(0)}), *data

    return easy


def in_pymc(
    name: str, description: str, build: PyMCBuilder, easy: PyMCBuilder | None = None
) -> TrustModel:
    """A PyMC model; `easy` as in `in_numpyro`."""
    return TrustModel(name, description, lambda: nvgd.from_pymc(build()), PyMCNUTS(easy or build))
