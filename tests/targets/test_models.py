"""The default method on common models, against quantiles of NUTS (`make_references.py`)."""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Int
from numpyro_models import MODELS
from pymc_models import regression

import nvgd
from nvgd.posterior.summary import scalars

REFERENCES = json.loads((Path(__file__).parent / "references.json").read_text())

pytestmark = pytest.mark.xdist_group("models")


class Switched(eqx.Module):
    """One of several log densities, padded with standard normal coordinates to the same length.

    Models of similar dimension then share one compiled program; compiling takes longer than
    running.
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


# Largest error of the first, fifth and ninth decile, in units of the distance between the first and
# the ninth: 1.5 times the worst scalar of four seeds. For comparison: the worst of ten scalars of
# 100 independent draws has an error of 0.15.
TOLERANCES = {
    "eight schools": 0.52,
    "eight schools, not centred": 0.34,
    "hierarchical logistic": 0.32,
    "every support": 0.26,
    "ordered mixture": 0.18,
    "regression in PyMC": 0.52,
}
# Models with at most this many dimensions are padded among themselves: resampling between modes,
# which they are to test too, works in at most ten dimensions.
SMALL = 6


def found(targets, name, seed=0) -> dict[str, Any]:
    target = targets[name]
    alike = [other for other in targets.values() if (other.dim > SMALL) == (target.dim > SMALL)]
    posterior = nvgd.sample(
        Switched(jnp.array([other is target for other in alike].index(True)), tuple(alike)),
        dim=max(other.dim for other in alike),
        num_particles=100,
        num_steps=600,
        seed=seed,
        progress=False,
    )
    assert posterior.chains is not None
    shown = target.present(jnp.asarray(np.concatenate(posterior.chains.positions)[:, : target.dim]))
    names, values = scalars({name: value[None] for name, value in shown.items()})
    return dict(zip(names, values[0].T, strict=True))


def errors(draws, references) -> dict[str, float]:
    """The largest error of a decile, for every scalar."""
    result = {}
    for scalar, row in references.items():
        low, _, high = row["deciles"]
        deciles = np.quantile(draws[scalar], (0.1, 0.5, 0.9))
        result[scalar] = float(np.max(np.abs(deciles - row["deciles"]))) / (high - low)
    return result


@pytest.mark.parametrize("name", TOLERANCES)
def test_deciles_are_those_of_nuts(targets, name):
    off = errors(found(targets, name), REFERENCES[name])
    assert max(off.values()) < TOLERANCES[name], off
