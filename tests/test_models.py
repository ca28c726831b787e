"""Real models by the default method, against moments that NUTS found (`make_references.py`)."""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array, Int
from numpyro_models import MODELS
from pymc_models import regression

import nvgd
from nvgd.summaries import scalars

REFERENCES = json.loads((Path(__file__).parent / "references.json").read_text())

pytestmark = pytest.mark.xdist_group("models")


class Switched(eqx.Module):
    """One of several log densities, filled up with standard normal coordinates to one length.

    All models then share one compiled program, which takes longer than all the runs.
    """

    number: Int[Array, ""]
    targets: tuple[nvgd.Target, ...]

    def __call__(self, position):
        def branch(target):
            def log_density(x):
                return target.log_density(x[: target.dim]) - 0.5 * jnp.sum(x[target.dim :] ** 2)

            return log_density

        return jax.lax.switch(self.number, [branch(target) for target in self.targets], position)


@pytest.fixture(scope="module")
def targets() -> dict[str, nvgd.Target]:
    built = {
        name: nvgd.from_numpyro(model, *args, **kwargs)
        for name, (model, args, kwargs) in MODELS.items()
    }
    return {**built, "regression in PyMC": nvgd.from_pymc(regression())}


# How far means (in standard deviations) and standard deviations (relative) may be off: three times
# what ten seeds were, on average.
TOLERANCES = {
    "eight schools": (0.3, 0.3),
    "eight schools, not centred": (0.3, 0.3),
    "hierarchical logistic": (0.3, 0.3),
    "every support": (0.3, 0.3),
    "ordered mixture": (0.3, 0.3),
    "regression in PyMC": (0.3, 0.3),
}


def found(targets, name, seed=0) -> dict[str, Any]:
    number = list(targets).index(name)
    dim = max(target.dim for target in targets.values())
    posterior = nvgd.sample(
        Switched(jnp.array(number), tuple(targets.values())),
        dim=dim,
        num_particles=150,
        num_steps=400,
        seed=seed,
        progress=False,
    )
    target = targets[name]
    names, values = scalars(target.present(posterior.particles[:, : target.dim]))
    return dict(zip(names, values.T, strict=True))


@pytest.mark.parametrize("name", TOLERANCES)
def test_moments_are_those_of_nuts(targets, name):
    draws = found(targets, name)
    mean_tolerance, sd_tolerance = TOLERANCES[name]
    for scalar, row in REFERENCES[name].items():
        values = draws[scalar]
        assert abs(values.mean() - row["mean"]) < mean_tolerance * row["sd"], scalar
        assert abs(values.std() / row["sd"] - 1) < sd_tolerance, scalar
