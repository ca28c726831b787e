"""What a posterior shows, predicts, writes and draws."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd import coordinates, densities, directions, movers
from nvgd.densities import Gaussian

ROWS = np.random.default_rng(0).normal(1.0, 2.0, 40).astype(np.float32)


def log_likelihood(at, row):
    return -0.5 * ((row["value"] - at["mean"]) / jnp.exp(at["log_scale"])) ** 2 - at["log_scale"]


def predict(at, key, num=3):
    return at["mean"] + jnp.exp(at["log_scale"]) * jax.random.normal(key, (num,))


TARGET = nvgd.Target(
    lambda at: -0.5 * at["mean"] ** 2 - 0.5 * jnp.sum(at["log_scale"] ** 2),
    example={"mean": 0.0, "log_scale": 0.0},
    log_likelihood=log_likelihood,
    data={"value": ROWS},
    batch_size=10,
    constrain=lambda at: {
        "mean": at["mean"],
        "scale": jnp.exp(at["log_scale"]),
        "powers": at["mean"] ** jnp.arange(1, 3),
    },
    model=nvgd.Model(
        prior=lambda key, n: dict(
            zip(("mean", "log_scale"), 0.1 * jax.random.normal(key, (2, n)), strict=True)
        ),
        predict=predict,
        dims={"powers": ["power"]},
        coords={"power": ["one", "two"]},
    ),
)


def run(**options):
    options = {"num_particles": 30, "num_steps": 40, "progress": False, **options}
    return nvgd.sample(TARGET, nvgd.SGLD(1e-3), initial="prior", **options)


@pytest.fixture(scope="module")
def posterior():
    return run(metrics={"spread": jnp.std})


@pytest.fixture(scope="module")
def thinned():
    return run(thin=10)


# A flow with corrections, at a fraction of the price of `NVGD()`.
FLOW = nvgd.ParticleFlow(
    coordinates.Diagonal(), directions.Kernel(), movers.Capped(0.3), corrected=True
)
WHOLE = nvgd.Target(
    TARGET.log_prior,
    example={"mean": 0.0, "log_scale": 0.0},
    log_likelihood=log_likelihood,
    data={"value": ROWS},
    constrain=TARGET.constrain,
    model=TARGET.model,
)


@pytest.fixture(scope="module")
def chained():
    return nvgd.sample(WHOLE, FLOW, num_particles=40, num_steps=900, progress=False)


NORMAL = Gaussian([1.0, -2.0], [[1.0, 0.5], [0.5, 2.0]])


@pytest.fixture(scope="module")
def normal():
    """Draws of a normal distribution."""
    return nvgd.sample(
        NORMAL.log_density, FLOW, dim=2, num_particles=40, num_steps=900, progress=False
    )


pytestmark = pytest.mark.xdist_group("posterior")


def test_summary_is_a_table_and_columns(posterior):
    summary = posterior.summary(quantiles=(0.25, 0.75))
    assert list(summary.columns) == ["mean", "sd", "mc_error", "25%", "75%"]
    assert summary.names == ("mean", "scale", "powers[one]", "powers[two]")
    draws = np.asarray(posterior.draws["scale"])
    assert np.isclose(summary["75%"]["scale"], np.quantile(draws, 0.75), rtol=1e-5)
    assert all(value > 0 for value in summary["mc_error"].values())
    assert str(summary).splitlines()[0].split() == ["mean", "sd", "mc_error", "25%", "75%"]
    quick = posterior.summary(mc_error=False)
    assert np.isclose(quick["mean"]["scale"], draws.mean(), rtol=1e-5)
    assert all(np.isnan(value) for value in quick["mc_error"].values())
    assert "–" in str(quick)


def test_draws_are_chains_of_draws(posterior, thinned, chained):
    """One chain of particles; one chain per particle where a run keeps several states."""
    assert posterior.particles.shape == (30, 2)
    assert posterior.draws["powers"].shape == (1, 30, 2)
    assert np.allclose(posterior.draws["mean"][0], posterior.particles[:, 1])
    assert thinned.particles.shape == (4 * 30, 2)
    assert thinned.draws["powers"].shape == (30, 4, 2)
    by_time = np.asarray(thinned.particles).reshape(4, 30, 2)
    assert np.allclose(thinned.draws["mean"], by_time[:, :, 1].T)
    assert chained.particles.shape == (40, 2)
    num_draws = chained.chains.positions.shape[1]
    assert num_draws > 1
    assert chained.draws["powers"].shape == (40, num_draws, 2)
    assert np.allclose(chained.draws["mean"], chained.chains.positions[:, :, 1])


def test_chains_hold_the_log_densities_and_scores_of_their_states(chained):
    flat = chained.chains.positions.reshape(-1, 2)
    log_densities, scores = WHOLE.log_densities_and_scores(jnp.asarray(flat))
    found = chained.chains
    assert np.allclose(found.log_densities.ravel(), log_densities, rtol=1e-4)
    assert np.allclose(found.scores.reshape(-1, 2), scores, rtol=1e-3, atol=1e-3)


def test_a_run_with_thin_keeps_its_states_instead_of_the_chains():
    posterior = nvgd.sample(
        NORMAL.log_density, FLOW, dim=2, num_particles=20, num_steps=520, thin=130, progress=False
    )
    assert posterior.stages[-1] == ("corrections", 520)
    assert posterior.chains is None
    assert posterior.draws["x"].shape == (20, 4, 2)
    assert np.array_equal(posterior.draws["x"][:, -1], posterior.state.particles)


def test_particles_are_one_state_of_every_chain(chained):
    shown = chained.target.present(chained.particles)["mean"]
    assert shown.shape == (len(chained.particles),)
    middle = np.median(np.asarray(chained.draws["mean"]))
    assert np.median(np.asarray(shown)) == pytest.approx(middle, abs=0.2)


def test_means_and_deviations_of_a_normal_target_are_exact(normal):
    summary = normal.summary()
    assert np.allclose(summary.columns["mean"], NORMAL.mean, atol=1e-4)
    assert np.allclose(summary.columns["sd"] ** 2, np.diag(NORMAL.covariance), rtol=1e-3)
    assert np.all(summary.columns["mc_error"] < 1e-4)
    plain = normal.summary(mc_error=False)
    draws = np.asarray(normal.draws["x"]).reshape(-1, 2)
    assert np.allclose(plain.columns["mean"], draws.mean(axis=0), rtol=1e-4)


def test_summary_of_other_targets_has_errors_below_those_of_plain_means(chained):
    summary = chained.summary()
    assert summary.names == ("mean", "scale", "powers[one]", "powers[two]")
    naive = summary.columns["sd"] / np.sqrt(chained.draws["mean"].size)
    assert np.all(summary.columns["mc_error"] < naive)
    assert np.all(summary.columns["mc_error"] > 0)


def test_expectations_of_a_normal_target_are_exact(normal):
    moments = normal.expectation(lambda draw: jnp.outer(draw["x"], draw["x"]))
    exact = NORMAL.covariance + jnp.outer(NORMAL.mean, NORMAL.mean)
    assert moments.mean.shape == moments.error.shape == (2, 2)
    assert np.allclose(moments.mean, exact, rtol=1e-4)
    assert np.all(moments.error < 1e-3)
    # No control variate explains an indicator; its error is about that of the draws.
    share = normal.expectation(lambda draw: draw["x"][0] > 1.0)
    assert share.mean.shape == ()
    assert abs(share.mean - 0.5) < 4 * share.error
    assert 0.001 < share.error < 0.05


def test_errors_include_those_of_rounding_and_of_the_log_density(normal):
    """Control variates leave no error of sampling on a normal target."""
    summary = normal.summary()
    sds, rounding = summary.columns["sd"], np.finfo(np.float32).eps
    assert np.all(summary.columns["mc_error"] > rounding * sds)
    assert np.all(summary.columns["mc_error"] < 100 * rounding * (1 + sds))
    approximate = dataclasses.replace(normal, density_error=0.1)
    errors = approximate.summary().columns["mc_error"]
    np.testing.assert_allclose(errors, 0.1 * sds, rtol=1e-3)
    found = approximate.expectation(lambda draw: draw["x"])
    np.testing.assert_allclose(found.error, errors, rtol=0.1)


def test_functions_without_an_expectation_are_refused(normal):
    for function, message in (
        (lambda draw: draw["y"], "the names are x. It raised KeyError"),
        (lambda draw: jnp.log(draw["x"][1]), "finite numbers, got NaN or infinity at"),
    ):
        with pytest.raises(nvgd.InputError, match=message):
            normal.expectation(function)


def test_expectations_without_scores_are_plain_means():
    rows = iter([{"value": ROWS[:10]}] * 1000)
    streamed = nvgd.Target(
        TARGET.log_prior,
        example={"mean": 0.0, "log_scale": 0.0},
        log_likelihood=log_likelihood,
        data=nvgd.BatchStream(rows, num_rows=40),
    )
    posterior = nvgd.sample(
        streamed, nvgd.SGLD(1e-3), num_particles=20, num_steps=5, progress=False
    )
    found = posterior.expectation(lambda draw: draw["mean"])
    assert np.isclose(found.mean, posterior.draws["mean"].mean(), rtol=1e-5)
    assert np.isnan(found.error)


def test_predictions_follow_the_particles(posterior):
    predicted = posterior.predict(200, seed=3)["prediction"]
    assert predicted.shape == (1, 30, 200)
    draws = posterior.draws
    assert np.allclose(predicted.mean(axis=2), draws["mean"], atol=0.8)
    assert np.array_equal(predicted, posterior.predict(200, seed=3)["prediction"])
    with pytest.raises(nvgd.InputError, match="predict could not be evaluated"):
        posterior.predict("many")
    plain = nvgd.sample(lambda x: -x @ x, nvgd.ULA(0.1), dim=1, num_steps=1, progress=False)
    with pytest.raises(nvgd.InputError, match="this target cannot predict"):
        plain.predict()


def test_predictions_follow_the_chains(thinned, chained):
    for several in (thinned, chained):
        predicted = several.predict(200)["prediction"]
        assert predicted.shape == (*several.draws["mean"].shape, 200)
        assert np.allclose(predicted.mean(axis=2), several.draws["mean"], atol=0.8)


def test_plots_of_chosen_names_and_of_too_many(posterior):
    assert len(posterior.plot(names=["scale"]).axes) == 1
    wide = nvgd.sample(lambda x: -x @ x, nvgd.ULA(0.1), dim=40, num_steps=1, progress=False)
    assert "first 36 of 40 scalars" in wide.plot().get_suptitle()
    with pytest.raises(nvgd.InputError, match=r"names must be among .*scale, got mode"):
        posterior.plot(names=["mode"])
    with pytest.raises(nvgd.InputError, match="kind must be one of 'marginals', 'pairs'"):
        posterior.plot("violins")


def test_a_posterior_comes_back_from_its_file(posterior, tmp_path):
    path = tmp_path / "run.npz"
    posterior.save(path)
    alone = nvgd.load(path)
    assert str(alone.summary()) == str(posterior.summary())
    assert repr(alone) == repr(posterior)
    for group in ("draws", "history", "metrics"):
        before, after = getattr(posterior, group), getattr(alone, group)
        assert list(before) == list(after)
        assert all(np.array_equal(before[name], after[name]) for name in before)
    assert alone.to_arviz()["posterior"]["powers"].dims == ("chain", "draw", "power")
    assert alone.plot().axes
    with pytest.raises(nvgd.InputError, match=r"predict needs the target: .*nvgd\.load"):
        alone.predict()
    whole = nvgd.load(path, target=TARGET)
    assert np.array_equal(whole.predict()["prediction"], posterior.predict()["prediction"])
    # The documented format: NumPy reads it, and no pickle is in it.
    with np.load(path, allow_pickle=False) as file:
        header = json.loads(file["header"].tobytes())
        assert np.array_equal(file["draws/scale"], posterior.draws["scale"])
    assert (header["kind"], header["version"]) == ("posterior", 1)


def test_files_that_are_no_posteriors(posterior, tmp_path):
    path = tmp_path / "run.npz"
    with pytest.raises(nvgd.InputError, match="there is no file"):
        nvgd.load(path)
    path.write_text("hello")
    with pytest.raises(nvgd.InputError, match="damaged or not a file of nvgd"):
        nvgd.load(path)
    with pytest.raises(nvgd.InputError, match="in a directory that exists"):
        posterior.save(tmp_path / "nowhere" / "run.npz")
    posterior.save(path)
    with pytest.raises(nvgd.InputError, match=r"target has 3 coordinates, but .* with 2"):
        nvgd.load(path, target=nvgd.Target(lambda x: -x @ x, dim=3))


def test_chains_come_back_from_a_file(chained, tmp_path):
    path = tmp_path / "run.npz"
    chained.save(path)
    alone = nvgd.load(path)
    assert alone.chains is not None
    for before, after in zip(chained.chains, alone.chains, strict=True):
        assert np.array_equal(before, after)
    assert np.array_equal(alone.draws["powers"], chained.draws["powers"])
    assert alone.stages == chained.stages
    assert str(alone.summary()) == str(chained.summary())
    assert str(alone.diagnose()).splitlines()[0] == str(chained.diagnose()).splitlines()[0]
    again = nvgd.load(path, target=WHOLE)
    assert np.array_equal(again.draws["scale"], chained.draws["scale"])
    before, after = (x.predict()["prediction"] for x in (chained, again))
    assert np.array_equal(before, after)
    with pytest.raises(nvgd.InputError, match="are not stored in files"):
        again.sample(3)


def test_further_draws_are_as_good_as_exact_ones_however_few():
    funnel = densities.Funnel(5)
    posterior = nvgd.sample(
        funnel.log_density, dim=5, num_particles=200, num_steps=1000, progress=False
    )
    before = np.array(posterior.particles)
    reference = funnel.sample(jax.random.key(9), 2000)

    def energy(particles):
        return float(nvgd.metrics.energy_distance(particles, reference))

    exact = [energy(funnel.sample(jax.random.key(i), 300)) for i in range(8)]
    # More draws than chains.
    draws = posterior.sample(300, seed=5)
    assert draws.particles.shape == (300, 5)
    assert draws.draws["x"].shape == (1, 300, 5)
    assert energy(draws.particles) < 2 * max(exact)
    assert np.array_equal(posterior.sample(300, seed=5).particles, draws.particles)
    assert not np.array_equal(posterior.sample(300, seed=6).particles, draws.particles)
    assert np.array_equal(posterior.particles, before)
    one = posterior.sample(1).particles
    assert one.shape == (1, 5)
    assert not np.any(np.all(np.isclose(one, posterior.state.particles), axis=1))


def test_further_draws_have_all_that_draws_have(normal, tmp_path):
    draws = normal.sample(200, seed=3)
    assert draws.draws["x"].shape == (1, 200, 2)
    assert np.allclose(draws.summary().columns["mean"], NORMAL.mean, atol=1e-3)
    assert draws.to_arviz()["posterior"]["x"].shape == (1, 200, 2)
    assert draws.diagnose().converged
    draws.save(tmp_path / "draws.npz")
    assert np.array_equal(nvgd.load(tmp_path / "draws.npz").draws["x"], draws.draws["x"])
    with pytest.raises(nvgd.InputError, match="this posterior has none"):
        draws.sample(2)


def test_further_draws_need_chains(posterior):
    with pytest.raises(nvgd.InputError, match=r"posterior has none: .*NVGD\(\), all data at once"):
        posterior.sample(3)
    with pytest.raises(nvgd.InputError, match="num_draws must be a whole number ≥ 1"):
        posterior.sample(0)
