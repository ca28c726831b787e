"""PyMC models, BlackJAX's loop, and what is said when an optional package is missing."""

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytest
from pymc_models import FEATURES, VALUES, regression

import nvgd
from nvgd.densities import Gaussian
from nvgd.starts import flatten


@pytest.fixture(scope="module")
def target():
    return nvgd.from_pymc(regression())


def known(target) -> Any:
    """The model's side, of which everything is known."""
    return target.model


@pytest.mark.xdist_group("pymc")
def test_the_process_is_left_as_it_was(target):
    assert not jax.config.read("jax_enable_x64")
    assert "device_count" not in os.environ.get("XLA_FLAGS", "")
    assert target.log_density(jnp.zeros(4)).dtype == jnp.float32


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
    flat = flatten(target, jax.tree.map(lambda v: np.asarray(v)[None], position))
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


def nothing_free():
    with pm.Model() as model:
        pm.Normal("x", 0.0, 1.0, observed=[1.0])
    return model


def discrete():
    with pm.Model() as model:
        kind = pm.Bernoulli("kind", 0.5)
        pm.Normal("x", kind, 1.0, observed=[1.0])
    return model


def minibatched():
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.0, 1.0)
        batch: Any = pm.Minibatch
        pm.Normal("x", mean, 1.0, observed=batch(VALUES, batch_size=5), total_size=30)
    return model


@pytest.mark.xdist_group("pymc")
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (nothing_free, "has no latent variable to sample"),
        (discrete, "discrete latent variables cannot .* kind is discrete: sum it out"),
        (minibatched, "pymc.Minibatch, as x uses it"),
        (lambda: regression(VALUES[:20]), r"length that it says they have\? .*20.*30"),
        (lambda: 3, r"model must be a pymc\.Model, got 3"),
    ],
)
def test_pymc_models_that_cannot_be_sampled(build, message):
    with pytest.raises(nvgd.InputError, match=message) as caught:
        nvgd.from_pymc(build())
    assert "\n" not in str(caught.value)


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
