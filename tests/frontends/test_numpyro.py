"""NumPyro models: the same density, supports, names and data as NumPyro has."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import init_to_median, init_to_value
from numpyro_models import (
    EFFECTS,
    ERRORS,
    MODELS,
    ROWS,
    VALUES,
    eight_schools,
    every_support,
    hierarchical_logistic,
    potential,
    subsampled_regression,
)

import nvgd
from nvgd.targets.epochs import EpochShuffle

PARTICLES = 40


def known(target) -> Any:
    """The target's model, all of whose methods return something."""
    return target.model


@pytest.fixture(scope="module", params=MODELS, ids=list(MODELS))
def case(request):
    model, args, kwargs = MODELS[request.param]
    target = nvgd.from_numpyro(model, *args, **kwargs)
    return target, model, args, kwargs


def test_log_density_is_numpyros(case):
    target, model, args, kwargs = case
    particles = jax.random.normal(jax.random.key(0), (7, target.dim))

    @jax.jit
    def both(particles):
        ours = jax.vmap(target.log_density)(particles)
        return ours, potential(model, args, kwargs, jax.vmap(target.structure)(particles))

    ours, theirs = both(particles)
    assert np.allclose(ours, -theirs, rtol=1e-4, atol=1e-3)


def test_output_lies_in_the_models_supports():
    target = nvgd.from_numpyro(every_support)
    draws = target.present(jax.random.normal(jax.random.key(0), (PARTICLES, target.dim)))
    assert jnp.allclose(draws["simplex"].sum(axis=-1), 1.0, atol=1e-5)
    assert jnp.all(draws["positive"] > 0)
    assert jnp.all((draws["bounded"] > draws["lower"]) & (draws["bounded"] < draws["lower"] + 2))
    assert jnp.all(jnp.diff(draws["ordered"], axis=-1) > 0)
    matrices = np.asarray(draws["correlation"])
    assert np.allclose(np.diagonal(matrices, axis1=1, axis2=2), 1.0, atol=1e-5)
    assert np.all(np.linalg.eigvalsh(matrices) > -1e-5)


def test_prior_draws_are_draws_from_the_prior_and_starts_are_numpyros():
    target = nvgd.from_numpyro(eight_schools, ERRORS, EFFECTS)
    start = known(target).draw_start(jax.random.key(1), 400)
    largest = [float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(start)]
    assert all(1.9 < value < 2.01 for value in largest)  # uniform(-2, 2)
    prior = known(target).draw_prior(jax.random.key(2), 400)
    draws = {
        name: np.asarray(value) for name, value in jax.vmap(known(target).constrain)(prior).items()
    }
    assert np.isclose(draws["mu"].std(), 5.0, atol=0.6)
    assert np.isclose(np.median(draws["tau"]), 5.0, atol=1.2)
    within = (draws["theta"] - draws["mu"][:, None]) / draws["tau"][:, None]
    assert np.isclose(within.std(), 1.0, atol=0.05)


def test_observations_log_likelihoods_and_predictions():
    target = nvgd.from_numpyro(eight_schools, ERRORS, effects=EFFECTS)
    positions = known(target).draw_prior(jax.random.key(0), 500)
    assert np.allclose(known(target).observed()["effect"], EFFECTS)
    theta = jax.vmap(known(target).constrain)(positions)["theta"]
    expected = -0.5 * ((EFFECTS - theta) / ERRORS) ** 2 - np.log(ERRORS * np.sqrt(2 * np.pi))
    found = known(target).log_likelihoods(positions)["effect"]
    assert np.allclose(found, expected, rtol=1e-3, atol=1e-3)
    predicted = known(target).predict(jax.random.key(1), positions)["effect"]
    residuals = (predicted - theta) / ERRORS
    assert np.allclose(residuals.mean(), 0, atol=0.05)
    assert np.allclose(residuals.std(), 1, atol=0.05)
    elsewhere = known(target).predict(jax.random.key(1), positions, ERRORS / 1e4)["effect"]
    assert np.allclose(elsewhere, theta, atol=0.05)


def test_strategies_of_numpyro():
    at = init_to_value(values={"slope": jnp.array([1.0, 2.0])})
    target = nvgd.from_numpyro(subsampled_regression, ROWS, VALUES, init_strategy=at)
    assert jnp.allclose(known(target).draw_start(jax.random.key(0), 3)["slope"], jnp.array([1, 2]))
    target = nvgd.from_numpyro(subsampled_regression, ROWS, VALUES, init_strategy=init_to_median)
    spread = jnp.std(known(target).draw_start(jax.random.key(0), 50)["slope"], axis=0)
    assert jnp.all(spread < 0.7)  # medians of a few prior draws, whose own spread is 1


def test_a_subsampled_plate_becomes_minibatches():
    """Over an epoch the estimates average to the density of the model with all rows."""
    target = nvgd.from_numpyro(subsampled_regression, ROWS, VALUES)
    assert (target.num_rows, target.batch_size) == (60, 20)
    particles = 0.5 * jax.random.normal(jax.random.key(0), (5, target.dim))
    arguments = (jnp.asarray(ROWS), jnp.asarray(VALUES)), {"batch_size": None}
    positions = jax.vmap(target.structure)(particles)
    exact = -potential(subsampled_regression, *arguments, positions)
    batches = [
        target.log_densities_and_scores(particles, target.batch(rows))[0]
        for rows in EpochShuffle(60, 20, seed=0).rows(0, 3)
    ]
    assert np.allclose(np.mean(batches, axis=0), exact, rtol=1e-4)
    assert not np.allclose(batches[0], exact, rtol=1e-2)
    assert np.allclose(jax.vmap(target.log_density)(particles), exact, rtol=1e-4)
    assert set(target.present(particles)) == {"slope", "scale", "length"}
    assert np.array_equal(known(target).observed()["value"], VALUES)
    assert known(target).predict(jax.random.key(0), positions)["value"].shape == (5, 60)


def test_data_of_models_that_allow_it_are_not_constants_of_the_program():
    """So that other data of the same shape do not compile again."""
    targets = [nvgd.from_numpyro(eight_schools, ERRORS, EFFECTS + shift) for shift in (0.0, 1.0)]
    structures = [jax.tree.structure(target) for target in targets]
    assert structures[0] == structures[1]
    first, second = (
        [leaf for leaf in jax.tree.leaves(target) if not isinstance(leaf, jax.Array)]
        for target in targets
    )
    assert first == second
    at = jnp.zeros(targets[0].dim)
    assert targets[0].log_density(at) != targets[1].log_density(at)
    _, args, kwargs = MODELS["hierarchical logistic"]
    looks = nvgd.from_numpyro(hierarchical_logistic, *args, **kwargs)
    assert len(looks.present(jnp.zeros((1, looks.dim)))["offset"][0]) == 4


@pytest.mark.xdist_group("schools")
def test_langevin_dynamics_recovers_the_non_centred_schools():
    """Reference: 4 chains of 4000 draws by NUTS: mu 4.44 ± 3.29, tau's median 2.81."""
    target = nvgd.from_numpyro(MODELS["eight schools, not centred"][0], ERRORS, EFFECTS)
    posterior = nvgd.sample(
        target,
        nvgd.ULA(5e-2),
        num_particles=400,
        num_steps=1500,
        progress=False,
    )
    draws = {name: np.asarray(value)[0] for name, value in posterior.draws.items()}
    assert abs(draws["mu"].mean() - 4.4) < 0.6
    assert abs(draws["mu"].std() - 3.3) < 0.5
    assert abs(np.median(draws["tau"]) - 2.8) < 0.6
    assert {name: value.shape[1:] for name, value in draws.items()} == {
        "mu": (),
        "tau": (),
        "theta": (8,),
        "theta_decentered": (8,),
    }
    rebuilt = draws["mu"][:, None] + draws["tau"][:, None] * draws["theta_decentered"]
    assert np.allclose(draws["theta"], rebuilt, rtol=1e-4, atol=1e-4)
    labels = known(target).labels()
    assert labels.dims["theta"] == ("school",)
    assert len(labels.coords["school"]) == 8


class Unsampled(dist.Distribution):
    """A density without a `sample` method, as users write them."""

    support: Any = dist.constraints.positive

    def log_prob(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        return -value


def improper(values=None):
    mean = numpyro.sample("mean", dist.ImproperUniform(dist.constraints.real, (), ()))
    numpyro.sample("rate", Unsampled())
    with numpyro.plate("component", 2):
        numpyro.sample("part", dist.ImproperUniform(dist.constraints.unit_interval, (), ()))
    with numpyro.plate("row", 60):
        numpyro.sample("value", dist.Normal(mean, 1.0), obs=values)


def improper_in_batches(values):
    mean = numpyro.sample("mean", dist.ImproperUniform(dist.constraints.real, (), ()))
    with numpyro.plate("row", 60, subsample_size=20) as rows:
        numpyro.sample("value", dist.Normal(mean, 1.0), obs=values[rows])


def test_improper_priors_are_sampled_but_not_drawn_from():
    target = nvgd.from_numpyro(improper, VALUES)
    assert target.dim == 4
    start = known(target).draw_start(jax.random.key(0), 50)
    assert all(bool(jnp.all(jnp.abs(leaf) < 2.01)) for leaf in jax.tree.leaves(start))
    options: dict[str, Any] = {"num_particles": 200, "num_steps": 400, "progress": False}
    posterior = nvgd.sample(target, nvgd.ULA(2e-3), **options)
    mean = np.asarray(posterior.draws["mean"])
    assert abs(mean.mean() - VALUES.mean()) < 0.3 / np.sqrt(60)
    assert abs(np.sqrt(60) * mean.std() - 1) < 0.2
    assert posterior.predict()["value"].shape == (1, 200, 60)
    message = "cannot draw 'mean', 'part', 'rate' from the prior, which is improper"
    with pytest.raises(nvgd.InputError, match=message) as caught:
        nvgd.sample(target, nvgd.ULA(2e-3), initial="prior", **options)
    assert "\n" not in str(caught.value)


def observed_only(data):
    numpyro.sample("x", dist.Normal(0.0, 1.0), obs=data)


def discrete(data):
    kind = numpyro.sample("kind", dist.Bernoulli(0.5))
    numpyro.sample("x", dist.Normal(kind, 1.0), obs=data)


def local(data):
    with numpyro.plate("row", 8, subsample_size=2) as rows:
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("x", dist.Normal(z, 1.0), obs=data[rows])


def two_plates(data):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    for name in ("a", "b"):
        with numpyro.plate(name, 8, subsample_size=2) as rows:
            numpyro.sample(f"x_{name}", dist.Normal(mean, 1.0), obs=data[rows])


def no_bijection():
    numpyro.sample("x", dist.ImproperUniform(dist.constraints.sphere, (), (3,)))


@pytest.mark.parametrize(
    ("model", "args", "message"),
    [
        (observed_only, (ERRORS,), "has no latent variable to sample"),
        (discrete, (ERRORS,), "discrete latent variables cannot .* kind is discrete: sum it out"),
        (eight_schools, (ERRORS, EFFECTS[:7]), r"site 'effect' have shape \(7,\), .* \(8,\)"),
        (eight_schools, (ERRORS, EFFECTS[:, None]), r"site 'effect' have shape \(8, 1\)"),
        (subsampled_regression, (ROWS, VALUES[:50]), "shorter than the plate 'row', .* 60 rows"),
        (subsampled_regression, (ROWS, jnp.asarray(VALUES[:50])), "shorter than the plate"),
        (improper_in_batches, (VALUES[:50],), "shorter than the plate 'row', .* 60 rows"),
        (no_bijection, (), "support of site 'x', .* has no map to unconstrained space"),
        (local, (ERRORS,), "latent variable z lies in the subsampled plate 'row'"),
        (two_plates, (ERRORS,), "only one plate can be seen in minibatches, and a, b have"),
        (eight_schools, (), "could not be run with these arguments: .*missing 1 required"),
    ],
)
def test_models_that_cannot_be_sampled(model, args, message):
    with pytest.raises(nvgd.InputError, match=message) as caught:
        nvgd.from_numpyro(model, *args)
    assert "\n" not in str(caught.value)
