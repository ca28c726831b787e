import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd.posterior.diagnostics.rank_uniformity import holm, uniform_band, uniformity_p_values
from nvgd.running import simulation_calibration
from nvgd.targets import evaluation

NUM_DATA = 4


def simulate(key):
    """A normal mean with a standard normal prior, seen through standard normal noise."""
    first, second = jax.random.split(key)
    mean = jax.random.normal(first, (2,))
    return {"mean": mean}, mean + jax.random.normal(second, (NUM_DATA, 2))


def log_density(position, data):
    mean = position["mean"]
    return -0.5 * jnp.sum(mean**2) - 0.5 * jnp.sum((data - mean) ** 2)


def make_target(data):
    return nvgd.Target(
        jax.tree_util.Partial(log_density, data=data), example={"mean": jnp.zeros(2)}
    )


@pytest.fixture
def exact_sampler(monkeypatch):
    """Replaces `sample` by draws of the posterior N(Σx/(n+1), 1/(n+1)), changed if asked."""

    def install(shift=0.0, width=1.0, leading=(100,), change=lambda draws: draws):
        def sample(target, *, seed, progress, **options):
            data = np.asarray(target.log_prior.keywords["data"])
            noise = np.random.default_rng(seed).standard_normal((*leading, 2))
            draws = data.sum(axis=0) + (shift + width * noise) * np.sqrt(NUM_DATA + 1)
            draws = {"mean": change(draws / (NUM_DATA + 1))}
            return types.SimpleNamespace(draws=draws, completed=seed % 2 == 0 or not options)

        monkeypatch.setattr(simulation_calibration, "sample_or_interrupt", sample)
        monkeypatch.setattr(simulation_calibration, "_check_options", lambda options: None)

    return install


def calibrate(num_simulations=200, **options):
    options = {"make_target": make_target, "progress": False, **options}
    return nvgd.simulation_based_calibration(simulate, num_simulations, **options)


@pytest.mark.parametrize("leading", [(100,), (20, 10)])
def test_an_exact_posterior_passes(exact_sampler, leading):
    exact_sampler(leading=leading)
    result = calibrate()
    assert result.is_uniform
    assert result.names == ("mean[0]", "mean[1]")
    assert result.ranks.shape == (200, 2)
    assert result["mean[1]"].max() < result.num_ranks == 50
    assert "ranks are uniform" in repr(result)
    assert [row[-1] for row in result.rows()[1:]] == ["fits", "fits"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"width": 0.6}, "too narrow"),
        ({"width": 1.7}, "too wide"),
        ({"shift": 0.5}, "too high"),
        ({"shift": -0.5}, "too low"),
    ],
)
def test_a_wrong_posterior_fails(exact_sampler, fault, words):
    exact_sampler(**fault)
    result = calibrate()
    assert not result.is_uniform
    assert "NOT uniform" in repr(result)
    assert [row[-1] for row in result.rows()[1:]] == [words, words]


def test_ties_are_broken_at_random(exact_sampler):
    exact_sampler(change=np.zeros_like)

    def constant(key):
        return {"mean": jnp.zeros(2)}, simulate(key)[1]

    result = nvgd.simulation_based_calibration(
        constant, 300, make_target=make_target, num_ranks=20, progress=False
    )
    assert result.is_uniform
    assert set(result["mean[0]"]) == set(range(20))


def test_the_same_seed_gives_the_same_result_and_stopped_runs_are_reported(exact_sampler):
    exact_sampler()
    first, again, other = (calibrate(20, seed=seed, num_steps=1) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.ranks, again.ranks)
    assert np.any(first.ranks != other.ranks)
    assert 0 < len(first.stopped) < 20
    assert f"{len(first.stopped)} runs stopped early: {first.stopped[0]}" in repr(first)


def test_every_run_is_handed_over_with_its_number(exact_sampler):
    exact_sampler()
    seen = []
    calibrate(5, on_run=lambda number, posterior: seen.append((number, posterior.draws["mean"])))
    assert [number for number, _ in seen] == [0, 1, 2, 3, 4]
    assert not np.array_equal(seen[0][1], seen[1][1])


def test_the_figure_has_one_panel_per_scalar(exact_sampler):
    exact_sampler()
    result = calibrate(30)
    assert [axes.get_title() for axes in result.plot().axes] == ["mean[0]", "mean[1]"]
    assert len(result.plot(["mean[1]"], narrow=True).axes) == 1
    with pytest.raises(nvgd.InputError, match="names must be among"):
        result.plot(["variance"])
    with pytest.raises(nvgd.InputError, match=r"the scalars are mean\[0\]"):
        result["variance"]


def test_p_values_and_bands_are_exact():
    """Their levels are kept by uniform ranks."""
    ranks = np.random.default_rng(0).integers(0, 20, (60, 4000))
    p_values = uniformity_p_values(ranks, 20)
    for level in (0.01, 0.05, 0.2):
        assert abs(np.mean(p_values <= level) - level) < 4 * np.sqrt(level / 4000) + 0.02 * level
    low, high = uniform_band(60, 20, 0.95)
    shares = np.mean(ranks[:, :, None] < np.arange(1, 20), axis=0)
    is_inside = np.all((shares > low - 1e-9) & (shares < high + 1e-9), axis=1)
    assert 0.94 < is_inside.mean() < 0.97
    np.testing.assert_allclose(holm(np.array([0.01, 0.5, 0.02])), [0.03, 0.5, 0.04])


OPTIONS = {"num_particles": 30, "num_steps": 20, "num_ranks": 16, "flow": nvgd.ULA()}


def test_one_compilation_serves_all_simulations():
    calibrate(2, **OPTIONS)
    program = evaluation._evaluate._jitted
    before = program._cache_size()
    result = calibrate(4, seed=1, **OPTIONS)
    assert program._cache_size() == before
    assert result.ranks.shape == (4, 2)


def test_a_log_density_that_is_compiled_every_time_gets_a_warning():
    def new_function(data):
        return lambda position: log_density(position, data)

    with pytest.warns(UserWarning, match="compiled for each of them"):
        calibrate(2, make_target=new_function, example={"mean": jnp.zeros(2)}, **OPTIONS)


def test_numbers_in_the_data_do_not_compile_anew():
    def simulate_scalar(key):
        mean = float(jax.random.normal(key))
        return {"mean": np.full(2, mean)}, (mean, 1)

    def scaled(position, data):
        return log_density(position, data[0] * data[1])

    def make(data):
        return nvgd.Target(jax.tree_util.Partial(scaled, data=data), example={"mean": jnp.zeros(2)})

    # A warning of compilations would be an error here.
    result = nvgd.simulation_based_calibration(
        simulate_scalar, 2, make_target=make, progress=False, **OPTIONS
    )
    assert result.ranks.shape == (2, 2)


@pytest.mark.slow
def test_the_default_sampler_is_calibrated():
    result = calibrate(10, num_steps=300, num_ranks=20)
    assert result.is_uniform
    assert not result.stopped


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_simulations": 1}, "num_simulations must be a whole number ≥ 2"),
        ({"num_ranks": 1}, "num_ranks must be a whole number ≥ 2"),
        ({"num_ranks": 99}, "at most one more than the 30 draws"),
        ({"seed": -1}, "seed must be"),
        ({"checkpoint": "here"}, "checkpoint cannot be set"),
        ({"num_step": 3}, "nvgd.sample has no argument 'num_step'"),
        ({"simulate": lambda key: 3}, "must return a pair"),
        ({"simulate": lambda key: ({}, 3)}, "must be finite numbers"),
        ({"simulate": lambda key: ({"mean": "a"}, 3)}, "must be finite numbers"),
        ({"simulate": lambda key: ({"m": 0.0}, simulate(key)[1])}, "draws are mean"),
        ({"simulate": lambda key: ({"mean": 0.0}, simulate(key)[1])}, "has shape"),
        ({"simulate": lambda key: ({"mean": np.zeros(3)}, simulate(key)[1])}, "has shape"),
    ],
)
def test_bad_input(options, message):
    options = {"num_simulations": 2, "make_target": make_target, **OPTIONS, **options}
    with pytest.raises(nvgd.InputError, match=message):
        nvgd.simulation_based_calibration(options.pop("simulate", simulate), **options)


def test_shapes_must_stay_the_same(exact_sampler):
    exact_sampler()
    calls = []

    def changing(key):
        calls.append(key)
        return {"mean": np.zeros(2)} if len(calls) < 2 else {"mean": 0.0}, simulate(key)[1]

    with pytest.raises(nvgd.InputError, match="same names and shapes every time"):
        nvgd.simulation_based_calibration(changing, 3, make_target=make_target, progress=False)
