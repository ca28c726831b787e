"""PyMC models of some of the posteriors, and the way from their draws to the coordinates."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

Data = Mapping[str, Any]


class Variable(NamedTuple):
    """A variable of a PyMC model, in the order of the posterior's coordinates."""

    name: str
    is_log: bool = False
    """Whether the coordinate is the variable's logarithm."""


class Statement(NamedTuple):
    """A posterior in PyMC."""

    model: Callable[[Data], pm.Model]
    variables: tuple[Variable, ...]

    def coordinates(self, posterior: Any) -> np.ndarray:
        """Draws (chains, draws, d) from the group `posterior` of an inference data object."""
        columns = []
        for variable in self.variables:
            values = np.asarray(posterior[variable.name])
            values = values.reshape(*values.shape[:2], -1)
            columns.append(np.log(values) if variable.is_log else values)
        return np.concatenate(columns, axis=2)


def _funnel(data: Data) -> pm.Model:
    with pm.Model() as model:
        first = pm.Normal("first", 0.0, data["scale"])
        pm.Normal("others", 0.0, pm.math.exp(first / 2), shape=data["dim"] - 1)
    return model


def _eight_schools(data: Data) -> pm.Model:
    effects, errors = np.array(data["effects"]), np.array(data["errors"])
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.0, 5.0)
        scale = pm.HalfCauchy("scale", 5.0)
        standardised = pm.Normal("standardised", 0.0, 1.0, shape=len(effects))
        pm.Normal("effects", mean + scale * standardised, errors, observed=effects)
    return model


def _radon(data: Data) -> pm.Model:
    county, floor, outcome = (np.array(data[name]) for name in ("county", "floor", "outcome"))
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.0, 10.0)
        scale = pm.HalfNormal("scale", 1.0)
        slope = pm.Normal("slope", 0.0, 10.0)
        sigma = pm.HalfNormal("sigma", 1.0)
        effects = pm.Normal("effects", mean, scale, shape=int(county.max()) + 1)
        pm.Normal("outcome", effects[county] + slope * floor, sigma, observed=outcome)
    return model


STATEMENTS: dict[str, Statement] = {
    "funnel_10": Statement(_funnel, (Variable("first"), Variable("others"))),
    "eight_schools_non_centred": Statement(
        _eight_schools,
        (Variable("mean"), Variable("scale", is_log=True), Variable("standardised")),
    ),
    "radon_centred": Statement(
        _radon,
        (
            Variable("mean"),
            Variable("scale", is_log=True),
            Variable("slope"),
            Variable("sigma", is_log=True),
            Variable("effects"),
        ),
    ),
}
