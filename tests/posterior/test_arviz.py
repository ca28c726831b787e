"""`Posterior.to_arviz` on both lines of ArviZ: 0.x, installed on Python 3.11, and 1.x."""

import importlib.metadata
from typing import Any

import arviz as az
import arviz_base
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pymc as pm
import pytest
import xarray
from pymc_models import FEATURES, regression
from pytensor.configdefaults import config

import nvgd
from nvgd.posterior import arviz as nvgd_arviz

ROWS = np.random.default_rng(0).normal(1.0, 2.0, 40).astype(np.float32)
GROUPS = {"posterior", "sample_stats", "log_likelihood", "observed_data", "posterior_predictive"}

pytestmark = [
    pytest.mark.xdist_group("arviz"),
    # Of leave-one-out from 200 draws.
    pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto"),
]


def log_likelihood(at, row):
    return -0.5 * ((row - at["mean"]) / jnp.exp(at["log_scale"])) ** 2 - at["log_scale"]


TARGET = nvgd.Target(
    lambda at: -0.5 * at["mean"] ** 2 - 0.5 * at["log_scale"] ** 2,
    example={"mean": 0.0, "log_scale": 0.0},
    log_likelihood=log_likelihood,
    data=ROWS,
    constrain=lambda at: {
        "scale": jnp.exp(at["log_scale"]),
        "powers": at["mean"] ** jnp.arange(1, 3),
    },
    model=nvgd.Model(
        predict=lambda at, key: at["mean"] + jax.random.normal(key, (3,)),
        dims={"powers": ["power"]},
        coords={"power": ["one", "two"]},
    ),
)


def run(target, num_particles=200, **options):
    return nvgd.sample(
        target,
        nvgd.ULA(5e-3),
        num_particles=num_particles,
        num_steps=300,
        progress=False,
        **options,
    )


NEAR = nvgd.Jittered({"mean": 1.0, "log_scale": 0.7})


@pytest.fixture(scope="module")
def posterior():
    return run(TARGET, initial=NEAR)


@pytest.fixture(scope="module")
def thinned():
    return run(TARGET, num_particles=30, initial=NEAR, thin=100)


@pytest.fixture(scope="module")
def pymc_model():
    return regression()


@pytest.fixture(scope="module")
def pymc_posterior(pymc_model):
    near = {"slope": jnp.array([1.0, -0.5]), "scale_log__": -0.5, "share_interval__": 0.0}
    return run(nvgd.from_pymc(pymc_model), initial=nvgd.Jittered(near))


@pytest.fixture(params=[0, 1], ids=["0.x", "1.x"])
def line(request, monkeypatch):
    if request.param == 0 and nvgd_arviz._installed_line() != 0:
        pytest.skip("an InferenceData needs ArviZ 0.x")
    monkeypatch.setattr(nvgd_arviz, "_installed_line", lambda: request.param)
    return request.param


def test_the_kind_of_object_is_that_of_the_line(line, posterior):
    kind = az.InferenceData if line == 0 else xarray.DataTree
    assert isinstance(posterior.to_arviz(), kind)


def test_every_group_has_the_posteriors_values_and_labels(line, posterior):
    found = posterior.to_arviz(seed=3)
    assert set(found.groups() if line == 0 else found.children) == GROUPS
    powers = found["posterior"]["powers"]
    assert powers.dims == ("chain", "draw", "power")
    assert list(powers["power"].values) == ["one", "two"]
    assert np.array_equal(powers.values, posterior.draws["powers"])
    assert np.array_equal(found["observed_data"]["data"].values, ROWS)
    log_likelihoods = found["log_likelihood"]["row"].values[0]
    mean, log_scale = posterior.draws["powers"][0, :, 0], jnp.log(posterior.draws["scale"][0])
    log_prior = -0.5 * mean**2 - 0.5 * log_scale**2
    log_density = found["sample_stats"]["lp"].values[0]
    assert np.allclose(log_density, log_prior + log_likelihoods.sum(axis=-1), rtol=1e-4)
    predictions = posterior.predict(seed=3)["prediction"]
    assert np.array_equal(found["posterior_predictive"]["prediction"].values, predictions)
    attributes = found["posterior"].attrs
    assert attributes["inference_library"] == "nvgd"
    assert (attributes["status"], attributes["num_steps"]) == ("completed", 300)
    assert "posterior_predictive" not in posterior.to_arviz(predictive=False)


def test_a_thinned_run_has_one_chain_per_particle(line, thinned):
    """More chains than draws, about which ArviZ must not warn."""
    del line
    found = thinned.to_arviz()
    scale = found["posterior"]["scale"].values
    assert scale.shape == (30, 3)
    assert np.array_equal(scale, thinned.draws["scale"])
    assert found["log_likelihood"]["row"].shape == (30, 3, 40)


def test_files_come_back(line, posterior, tmp_path):
    found, path = posterior.to_arviz(), tmp_path / "posterior.nc"
    found.to_netcdf(path)
    again: Any = (az.from_netcdf if line == 0 else xarray.load_datatree)(path)
    for group in GROUPS:
        for name in found[group].data_vars:
            assert np.array_equal(again[group][name].values, found[group][name].values)
    assert list(again["posterior"]["power"].values) == ["one", "two"]
    assert again["posterior"].attrs["method"] == "ULA"


def scoped(values):
    with numpyro.handlers.scope(prefix="outer"):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        with numpyro.plate("row", len(values)):
            numpyro.sample("value", dist.Normal(mean, 1.0), obs=values)


def test_names_of_scopes_can_be_written(line, tmp_path):
    del line
    found = run(nvgd.from_numpyro(scoped, ROWS)).to_arviz()
    found.to_netcdf(tmp_path / "scoped.nc")
    assert list(found["posterior"].data_vars) == ["outer.mean"]
    assert found["log_likelihood"]["outer.value"].dims == ("chain", "draw", "outer.row")
    assert found["posterior_predictive"]["outer.value"].dims == ("chain", "draw", "outer.row")


def test_the_installed_arviz_summarises_compares_and_plots(posterior, pymc_posterior):
    found = posterior.to_arviz()
    summary: Any = az.summary(found)
    assert list(summary.index) == ["powers[one]", "powers[two]", "scale"]
    mean = float(summary["mean"]["scale"])
    assert np.isclose(mean, posterior.draws["scale"].mean(), atol=0.1)
    loo = az.loo(found)
    assert (loo.n_samples, loo.n_data_points) == (200, 40)
    az.plot_forest(found)
    summary = az.summary(pymc_posterior.to_arviz())
    assert {"slope[age]", "slope[height]", "length"} <= set(summary.index)
    assert az.loo(pymc_posterior.to_arviz(predictive=False)).n_data_points == 30


def test_pymc_predicts_from_it(pymc_model, pymc_posterior):
    """From these particles: with another prior draw of the slope the correlation would be lost."""
    found = pymc_posterior.to_arviz(predictive=False)
    # Without a C compiler, which takes half a minute.
    with pymc_model, config.change_flags(cxx="", mode="FAST_COMPILE"):
        predicted = pm.sample_posterior_predictive(found, progressbar=False, random_seed=0)
        pm.sample_posterior_predictive(found, progressbar=False, extend_inferencedata=True)
    values = predicted["posterior_predictive"]["value"].values[0]
    means = np.asarray(pymc_posterior.draws["slope"][0]) @ FEATURES.T
    assert values.shape == (200, 30)
    assert np.corrcoef(values.ravel(), means.ravel())[0, 1] > 0.8
    assert found["posterior_predictive"]["value"].shape == (1, 200, 30)


def test_predictions_of_other_data_than_the_fitted_ones_are_refused(line):
    del line
    with pm.Model() as model:
        feature = pm.Data("feature", FEATURES[:, 0])
        slope = pm.Normal("slope", 0.0, 1.0)
        pm.Normal("value", slope * feature, 1.0, observed=pm.Data("values", FEATURES[:, 1]))
    posterior = run(nvgd.from_pymc(model), num_particles=5)
    with model:
        pm.set_data({"feature": np.zeros(7), "values": np.zeros(7)})
    with pytest.raises(nvgd.InputError, match=r"'value' with shape \(7,\), .* shape \(30,\)"):
        posterior.to_arviz()
    assert posterior.to_arviz(predictive=False)["observed_data"]["value"].shape == (30,)


@pytest.mark.parametrize("line", [1], indirect=True)
def test_the_parts_of_arviz_1_take_a_data_tree(line, posterior):
    del line
    found = posterior.to_arviz()
    assert arviz_base.convert_to_datatree(found) is found
    extracted = arviz_base.extract(found, num_samples=10, random_seed=0)
    assert extracted["powers"].sizes == {"power": 2, "sample": 10}
    arviz_stats = pytest.importorskip("arviz_stats")
    assert "powers[two]" in arviz_stats.summary(found).index
    assert arviz_stats.loo(found).n_data_points == 40


@pytest.mark.parametrize(
    ("installed", "line"), [("0.23.4", 0), ("0.24.0.dev0", 0), ("1.0.0", 1), ("2.1", 1), (None, 1)]
)
def test_the_line_is_that_of_the_installed_package(monkeypatch, installed, line):
    def version(package):
        assert package == "arviz"
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return installed

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert nvgd_arviz._installed_line() == line
