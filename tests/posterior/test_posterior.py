"""What a posterior shows, predicts, writes and draws."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd import densities
from nvgd.densities import Gaussian
from nvgd.posterior.summary import errors_of_means

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


pytestmark = pytest.mark.xdist_group("posterior")


def test_summary_is_a_table_and_columns(posterior):
    summary = posterior.summary(quantiles=(0.25, 0.75))
    assert list(summary.columns) == ["mean", "sd", "mc_error", "25%", "75%"]
    assert summary.names == ("mean", "powers[0]", "powers[1]", "scale")
    draws = np.asarray(posterior.draws["scale"])
    assert np.isclose(summary["mean"]["scale"], draws.mean(), rtol=1e-5)
    assert np.isclose(summary["75%"]["scale"], np.quantile(draws, 0.75), rtol=1e-5)
    assert all(value > 0 for value in summary["mc_error"].values())
    assert str(summary).splitlines()[0].split() == ["mean", "sd", "mc_error", "25%", "75%"]
    quick = posterior.summary(mc_error=False)
    assert all(np.isnan(value) for value in quick["mc_error"].values())
    assert "–" in str(quick)


@pytest.mark.parametrize(("num", "dim"), [(100, 2), (100, 60)])
def test_errors_of_means_are_right_for_independent_draws(num, dim):
    rng = np.random.default_rng(dim)
    mixing = np.eye(dim) + rng.normal(size=(dim, dim)) / np.sqrt(dim)
    precision = np.linalg.inv(mixing @ mixing.T)
    true, estimated = [], []
    for _ in range(200):
        draws = rng.normal(size=(num, dim)) @ mixing.T
        values = np.stack([draws[:, 0], draws[:, 0] ** 2 - (mixing @ mixing.T)[0, 0]], axis=1)
        true.append(values.mean(axis=0))
        estimated.append(errors_of_means(values, -draws @ precision))
    ratio = np.sqrt(np.mean(np.square(estimated), axis=0) / np.mean(np.square(true), axis=0))
    assert np.allclose(ratio, 1, atol=0.2)


def test_errors_of_means_see_what_interaction_does():
    """Particles of SVGD have a far better mean than draws; stopped too early, a far worse one."""
    density = Gaussian([1.0, -1.0], [[1.0, 0.5], [0.5, 2.0]])
    for num_steps, is_better in ((300, True), (8, False)):
        ensemble = nvgd.sample(
            density.log_density,
            nvgd.SVGD(0.3),
            dim=2,
            num_particles=50,
            num_steps=num_steps,
            progress=False,
        )
        summary = ensemble.summary()
        naive = summary.columns["sd"] / np.sqrt(50)
        error = np.abs(summary.columns["mean"] - [1.0, -1.0])
        assert np.all((summary.columns["mc_error"] < naive / 3) == is_better)
        assert np.allclose(summary.columns["mc_error"], error, rtol=0.1, atol=0.01)


def test_errors_of_means_of_one_chain_count_its_correlation():
    rng = np.random.default_rng(0)
    chain = np.zeros(4000)
    for i in range(1, 4000):
        chain[i] = 0.95 * chain[i - 1] + np.sqrt(1 - 0.95**2) * rng.normal()
    # Scores of no use: what is left is the chain's own correlation.
    useless = rng.normal(size=(4000, 1))
    found = errors_of_means(chain[:, None], useless, num_kept=4000)[0]
    exact = np.sqrt((1 + 0.95) / (1 - 0.95) / 4000)
    assert 0.5 * exact < found < 1.8 * exact


def test_predictions_follow_the_particles(posterior):
    predicted = posterior.predict(200, seed=3)["prediction"]
    assert predicted.shape == (30, 200)
    draws = posterior.draws
    assert np.allclose(predicted.mean(axis=1), draws["mean"], atol=0.8)
    assert np.array_equal(predicted, posterior.predict(200, seed=3)["prediction"])
    with pytest.raises(nvgd.InputError, match="predict could not be evaluated"):
        posterior.predict("many")
    plain = nvgd.sample(lambda x: -x @ x, nvgd.ULA(0.1), dim=1, num_steps=1, progress=False)
    with pytest.raises(nvgd.InputError, match="this target cannot predict"):
        plain.predict()


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


def test_further_draws_are_as_good_as_exact_ones_however_few():
    funnel = densities.Funnel(5)
    posterior = nvgd.sample(
        funnel.log_density, dim=5, num_particles=200, num_steps=500, progress=False
    )
    before = np.array(posterior.particles)
    reference = funnel.sample(jax.random.key(9), 2000)

    def energy(particles):
        return float(nvgd.metrics.energy_distance(particles, reference))

    exact = [energy(funnel.sample(jax.random.key(i), 300)) for i in range(8)]
    draws = posterior.sample(300, seed=5)
    assert draws.particles.shape == (300, 5)
    assert energy(draws.particles) < 2 * max(exact)
    assert np.array_equal(posterior.sample(300, seed=5).particles, draws.particles)
    assert not np.array_equal(posterior.sample(300, seed=6).particles, draws.particles)
    assert np.array_equal(posterior.particles, before)
    # Coordinates are fitted to as many chains as there are particles.
    one = posterior.sample(1).particles
    assert one.shape == (1, 5)
    assert not np.any(np.all(np.isclose(one, before), axis=1))


def test_further_draws_need_exact_log_densities_and_a_run(tmp_path):
    target = nvgd.Target(
        lambda x: -0.5 * x @ x,
        dim=1,
        log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2),
        data=np.zeros(20, np.float32),
        batch_size=5,
    )
    posterior = nvgd.sample(target, nvgd.SGLD(1e-3), num_steps=5, progress=False)
    with pytest.raises(nvgd.InputError, match="which minibatches only estimate"):
        posterior.sample(3)
    posterior.save(tmp_path / "run.npz")
    with pytest.raises(nvgd.InputError, match="sample needs the target: pass it"):
        nvgd.load(tmp_path / "run.npz").sample(3)
    normal = nvgd.Target(lambda x: -0.5 * x @ x, dim=1)
    again = nvgd.load(tmp_path / "run.npz", target=normal)
    assert again.sample(3).particles.shape == (3, 1)
