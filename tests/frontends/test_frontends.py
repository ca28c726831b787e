"""PyMC models, BlackJAX's loop, and messages about models and packages that are missing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pymc as pm
import pytest
from numpyro_models import eight_schools
from pymc_models import FEATURES, VALUES, regression
from scipy.stats import norm

import nvgd
from nvgd.densities import Gaussian


@pytest.fixture(scope="module")
def target():
    return nvgd.from_pymc(regression())


def known(target) -> Any:
    """The target's model, all of whose methods return something."""
    return target.model


# Reports what NumPyro and PyMC's part for JAX do, with or without an earlier `from_pymc`.
BEHAVIOUR = """
import json, os, sys, warnings
import jax, jax.numpy as jnp, numpy as np
import nvgd
from pymc_models import regression

model = regression()
if sys.argv[1] == "after from_pymc":
    target = nvgd.from_pymc(model)
    constants = jax.make_jaxpr(target.log_density)(jnp.zeros(target.dim)).consts
    assert {c.dtype for c in constants} == {jnp.zeros(()).dtype}, "constants of another precision"

import numpyro.distributions as dist

report = {
    "devices": len(jax.devices()),
    "flags": os.environ.get("XLA_FLAGS"),
    "draws": repr(dist.Gamma(2.0).sample(jax.random.key(0), (2,))),
    "log probability": repr(dist.Normal(0.0, 1.0).log_prob(np.float64(1 / 3))),
}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    # What pymc.sample(nuts_sampler="numpyro") begins with.
    import pymc.sampling.jax

    log_density = pymc.sampling.jax.get_jaxified_logp(model)
    report["log density by PyMC"] = repr(log_density([np.zeros(2), np.zeros(()), np.zeros(())]))
report["truncations"] = [str(w.message) for w in caught if "truncated" in str(w.message)]
report["64 bits of PyMC"] = jax.config.read("jax_enable_x64")
print(json.dumps(report))
"""


@pytest.mark.xdist_group("pymc")
@pytest.mark.parametrize("is_64_bit", [False, True])
def test_numpyro_and_pymc_behave_after_from_pymc_as_before(is_64_bit):
    helpers = str(Path(__file__).parent.parent / "helpers")
    environment = {**os.environ, "PYTHONPATH": helpers, "JAX_ENABLE_X64": str(int(is_64_bit))}
    reports = []
    for when in ("before", "after from_pymc"):
        command = [sys.executable, "-W", "ignore", "-c", BEHAVIOUR, when]
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        reports.append(json.loads(result.stdout.splitlines()[-1]))
    before, after = reports
    assert after == before
    assert ("float64" in after["draws"]) == is_64_bit


@pytest.mark.xdist_group("pymc")
def test_from_pymc_keeps_jaxs_precision_and_devices(target):
    assert not jax.config.read("jax_enable_x64")
    assert "device_count" not in os.environ.get("XLA_FLAGS", "")
    assert target.log_density(jnp.zeros(4)).dtype == jnp.float32
    with jax.enable_x64(True):
        target = nvgd.from_pymc(regression())
        assert target.log_density(jnp.zeros(4)).dtype == jnp.float64
    assert not jax.config.read("jax_enable_x64")


@pytest.mark.xdist_group("pymc")
def test_log_density_is_that_of_the_formula_with_its_jacobian(target):
    """Written out by hand: priors, log Jacobians of log and scaled logit, likelihood."""
    slope, log_scale, logit = np.array([0.4, -1.0]), -0.3, 0.7
    scale, half = np.exp(log_scale), 1 / (1 + np.exp(-logit))

    def normal(x, sd):
        return -0.5 * (x / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi))

    expected = (
        normal(slope, 1.0).sum()
        + normal(scale, 1.0) + np.log(2) + log_scale
        + np.log(0.5) + np.log(2 * half * (1 - half))
        + normal(VALUES - FEATURES @ slope, scale * 2 * half).sum()
    )  # fmt: skip
    position = {"slope": slope, "scale_log__": log_scale, "share_interval__": logit}
    flat = target.flatten(jax.tree.map(lambda v: np.asarray(v)[None], position))
    assert np.isclose(target.log_density(flat[0]), expected, rtol=1e-4)
    draws = target.present(flat)
    assert set(draws) == {"slope", "scale", "share", "length"}
    assert np.isclose(draws["share"][0], 2 * half, rtol=1e-5)
    assert np.isclose(draws["length"][0], np.linalg.norm(slope), rtol=1e-5)
    terms = known(target).log_likelihoods(jax.vmap(target.structure)(flat))["value"]
    assert np.allclose(terms[0], normal(VALUES - FEATURES @ slope, scale * 2 * half), rtol=1e-3)
    assert np.allclose(known(target).observed()["value"], VALUES)


@pytest.mark.xdist_group("pymc")
def test_labels_starts_and_predictions(target):
    labels = known(target).labels()
    assert labels.dims["slope"] == ("feature",)
    assert list(labels.coords["feature"]) == ["age", "height"]
    start = known(target).draw_start(jax.random.key(0), 50)
    assert 0.9 < max(float(jnp.abs(start[name]).max()) for name in ("slope",)) <= 1
    prior = known(target).draw_prior(jax.random.key(0), 200)
    assert np.isclose(np.std(prior["slope"]), 1.0, atol=0.1)
    # Predictions must come from these positions, not from the prior.
    positions = {
        "slope": jnp.tile(jnp.array([3.0, 2.0]), (40, 1)),
        "scale_log__": jnp.full(40, -5.0),
        "share_interval__": jnp.zeros(40),
    }
    predicted = known(target).predict(jax.random.key(1), positions)["value"]
    assert np.allclose(predicted, FEATURES @ [3.0, 2.0], atol=0.05)
    with pytest.raises(nvgd.InputError, match=r"takes no arguments .* pymc\.set_data"):
        known(target).predict(jax.random.key(1), positions, FEATURES)


@pytest.mark.xdist_group("pymc")
def test_data_containers_of_pymc():
    """Observations and labels are those that the log density was made with."""
    with pm.Model(coords={"row": range(30)}) as model:
        features = pm.Data("features", FEATURES)
        values = pm.Data("values", VALUES, dims="row")
        slope = pm.Normal("slope", 0.0, 1.0, shape=2)
        pm.Normal("value", pm.math.dot(features, slope), 0.5, observed=values, dims="row")
    target = nvgd.from_pymc(model)
    positions = {"slope": jnp.zeros((3, 2))}
    assert known(target).predict(jax.random.key(0), positions)["value"].shape == (3, 30)
    with model:
        pm.set_data({"features": FEATURES[:20], "values": np.zeros(20)}, coords={"row": range(20)})
    assert np.allclose(known(target).observed()["value"], VALUES)
    assert len(known(target).labels().coords["row"]) == 30
    assert known(target).log_likelihoods(positions)["value"].shape == (3, 30)
    assert known(target).predict(jax.random.key(0), positions)["value"].shape == (3, 20)


@pytest.mark.xdist_group("pymc")
def test_flat_priors_of_pymc():
    with pm.Model() as model:
        mean, scale = pm.Flat("mean"), pm.HalfFlat("scale")
        pm.Normal("value", mean, scale, observed=VALUES)
    target = nvgd.from_pymc(model)
    options = {"num_particles": 10, "num_steps": 3, "progress": False}
    posterior = nvgd.sample(target, nvgd.ULA(1e-3), **options)
    assert np.isfinite(posterior.draws["mean"]).all()
    with pytest.raises(nvgd.InputError, match="cannot draw mean, scale from the prior, which is"):
        nvgd.sample(target, nvgd.ULA(1e-3), initial="prior", **options)


@pytest.mark.xdist_group("pymc")
def test_sample_names_the_front_end_of_a_bare_model(monkeypatch):
    # A user's process has no run-time type checks, which would refuse the models first.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    model: Any = regression()
    with pytest.raises(nvgd.InputError, match=r"a Model: pass nvgd\.from_pymc\(model\)"):
        nvgd.sample(model)
    with pytest.raises(nvgd.InputError, match=r"NumPyro model goes through nvgd\.from_numpyro"):
        nvgd.sample(eight_schools)


def nothing_free():
    with pm.Model() as model:
        pm.Normal("x", 0.0, 1.0, observed=[1.0])
    return model


def discrete():
    with pm.Model() as model:
        kind = pm.Bernoulli("kind", 0.5)
        pm.Normal("x", kind, 1.0, observed=[1.0])
    return model


def minibatched(**options):
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.0, 1.0)
        batch: Any = pm.Minibatch
        pm.Normal("x", mean, 1.0, observed=batch(VALUES, batch_size=7), **options)
    return model


@pytest.mark.xdist_group("pymc")
def test_pymc_minibatches_have_the_log_density_of_all_rows():
    """Rows that PyMC would draw become minibatches; the last batch of an epoch may be short."""
    target = nvgd.from_pymc(minibatched(total_size=30))
    assert (target.batch_size, target.num_rows) == (7, 30)
    at = np.array([[0.4], [-1.0]], np.float32)
    expected = norm.logpdf(at) + norm.logpdf(VALUES, at).sum(axis=1, keepdims=True)
    assert np.allclose(target.on_all_data(jnp.asarray(at)).log_densities, expected[:, 0], rtol=1e-5)


@pytest.mark.xdist_group("pymc")
@pytest.mark.filterwarnings("ignore:total_size not provided")
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (nothing_free, "has no latent variable to sample"),
        (discrete, "discrete latent variables cannot .* kind is discrete: sum it out"),
        (minibatched, "x uses pymc.Minibatch without total_size: pass total_size="),
        (lambda: minibatched(total_size=60), r"got lengths \[30\], total_size \[60\]"),
        (lambda: regression(VALUES[:20]), r"length that it says they have\? .*20.*30"),
        (lambda: 3, r"model must be a pymc\.Model, got 3"),
    ],
)
def test_pymc_models_that_cannot_be_sampled(build, message):
    with pytest.raises(nvgd.InputError, match=message) as caught:
        nvgd.from_pymc(build())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("flow", [None, nvgd.NVGD()])
def test_blackjax_needs_the_length_of_a_run_that_depends_on_it(flow):
    log_density = Gaussian([0.0, 0.0], np.eye(2)).log_density
    with pytest.raises(nvgd.InputError, match=r"needs num_steps= for NVGD, whose step sizes"):
        nvgd.to_blackjax(log_density, flow, dim=2)
    with pytest.raises(nvgd.InputError, match="num_steps must be a whole number ≥ 1, got 0"):
        nvgd.to_blackjax(log_density, flow, dim=2, num_steps=0)


def test_blackjax_steps_the_default_method_with_the_length_of_the_run():
    """The last steps of a run are shorter than the first ones of a longer run."""
    log_density = Gaussian([0.0, 0.0], np.eye(2)).log_density
    particles = jax.random.normal(jax.random.key(0), (20, 2)) + 3.0
    last_moves = []
    for num_steps in (4, 400):
        algorithm = nvgd.to_blackjax(log_density, dim=2, num_steps=num_steps)
        state = algorithm.init(particles, jax.random.key(1))
        step = jax.jit(algorithm.step)
        moves = []
        for i in range(4):
            state, info = step(jax.random.key(2 + i), state)
            moves.append(float(info.step_norm))
        assert np.isfinite(state.particles).all()
        last_moves.append(moves[-1])
    assert last_moves[0] < 0.9 * last_moves[1]


def test_blackjaxs_own_loop_drives_a_flow():
    from blackjax.util import run_inference_algorithm

    density = Gaussian([1.0, -1.0], [[1.0, 0.5], [0.5, 2.0]])
    algorithm = nvgd.to_blackjax(density.log_density, nvgd.ULA(0.1), dim=2)
    state, infos = run_inference_algorithm(
        jax.random.key(0),
        algorithm,
        num_steps=200,
        initial_position=np.zeros((500, 2)),
        transform=lambda state, info: info.step_norm,
    )
    assert infos.shape == (200,)
    assert np.allclose(state.particles.mean(axis=0), [1.0, -1.0], atol=0.2)
    assert np.allclose(np.cov(state.particles.T), density.covariance, atol=0.35)


def test_blackjax_sees_minibatches_and_pytrees():
    rows = np.linspace(-1.0, 3.0, 100).astype(np.float32)
    target = nvgd.Target(
        lambda at: -0.5 * at["mean"] ** 2,
        example={"mean": 0.0},
        log_likelihood=lambda at, row: -0.5 * (row - at["mean"]) ** 2,
        data=rows,
        batch_size=10,
    )
    algorithm = nvgd.to_blackjax(target, nvgd.SGLD(1e-3))
    state = algorithm.init({"mean": np.zeros(400)}, jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 200)
    _, (means, counts) = jax.jit(lambda state: jax.lax.scan(
        lambda state, key: (
            (new := algorithm.step(key, state))[0], (new[0].particles.mean(), new[1].num_gradients)
        ), state, keys,
    ))(state)  # fmt: skip
    assert np.all(counts == 400)
    # All particles see the same batch, so that only the mean over steps is free of its noise.
    assert np.isclose(means[50:].mean(), 100 / 101, atol=0.08)


@pytest.mark.parametrize(
    ("package", "call", "extra"),
    [
        ("numpyro", "nvgd.from_numpyro(print)", "numpyro"),
        ("pymc", "nvgd.from_pymc(None)", "pymc"),
        ("blackjax", "nvgd.to_blackjax(print, dim=2)", "blackjax"),
    ],
)
def test_a_missing_extra_comes_with_the_line_that_installs_it(package, call, extra):
    code = f"import sys; sys.modules[{package!r}] = None\nimport nvgd\n{call}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = result.stderr.strip().splitlines()[-1]
    assert "MissingExtraError" in last
    assert f"needs the package {package}" in last
    assert f"pip install 'nvgd[{extra}]'" in last
