"""Figures of a posterior show what matters, on scales on which it can be seen."""

import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd.flow.stage import StageRecord
from nvgd.posterior.history_plot import history
from nvgd.posterior.palette import LANGEVIN, REFERENCE, colour_of, tint
from nvgd.posterior.plots import axis_limits, is_wide, kernel_density, marginals, pairs
from nvgd.posterior.predictive_plot import Predicted, predict_observed, predictive
from nvgd.posterior.selection import dependence, important, strongest_pair, without_axes

RNG = np.random.default_rng(0)
STAGES = (
    StageRecord("flow", 100),
    StageRecord("corrections", 300),
    StageRecord("corrections", 700),
)


def recorded():
    """A history as `nvgd.sample` records it: NaN, or zero counts, where a stage has no measure."""
    steps = np.arange(700)
    is_flow = steps < 100
    return {
        "log_density": -50 - 100 * np.exp(-steps / 10) + RNG.normal(size=700),
        "num_gradients": steps + 1,
        "inner_steps": np.where(is_flow, 1 + steps % 5, 0),
        "num_rescued": np.zeros(700, np.int32),
        "stein_discrepancy": np.where(is_flow, 2e4 * np.exp(-steps / 3), np.nan),
        "jump_acceptance": np.where(~is_flow & (steps % 10 == 0), 0.3 + 1e-3 * steps, np.nan),
        "acceptance": np.full(700, np.nan),
    }


def panels(figure):
    return {(axes.get_ylabel().replace("\n", " "), axes.get_xlim()): axes for axes in figure.axes}


def test_history_has_a_column_per_stage_and_no_empty_or_constant_panel():
    figure = history(recorded(), {}, STAGES)
    found = panels(figure)
    assert set(found) == {
        ("mean log density", (0.0, 100.0)),
        ("", (100.0, 700.0)),  # the same quantity in the corrections, with a shared axis
        ("Stein discrepancy (held-out particles)", (0.0, 100.0)),
        ("training steps of the network", (0.0, 100.0)),
        ("share of jumps accepted", (100.0, 700.0)),
    }
    assert [axes.get_title() for axes in figure.axes[:2]] == ["flow", "corrections"]
    assert "particles reborn 0" in figure.get_supxlabel()
    discrepancy = found["Stein discrepancy (held-out particles)", (0.0, 100.0)]
    assert discrepancy.get_yscale() == "symlog"
    jumps = found["share of jumps accepted", (100.0, 700.0)]
    assert all(np.isfinite(line.get_ydata()).all() for line in jumps.lines)
    assert sum(np.size(line.get_xdata()) for line in jumps.lines) == 60


def test_history_of_one_stage_with_metrics_and_of_nothing():
    values = {"log_density": np.arange(5.0), "bandwidth": np.ones(5)}
    values["inner_steps"] = np.array([0, 5, 0, 5, 5])
    values["step_norm"] = np.array([10.0, 1.0, 0.0, 0.1, 0.01])
    metrics = {"step": np.array([0, 5]), "my_metric": np.array([2.0, 1.0])}
    figure = history(values, metrics)
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["mean log density", "rms step length", "my metric"]
    assert figure.axes[1].get_yscale() == "log"
    note = "at every step: bandwidth of the kernel 1, training steps of the network 0 or 5"
    assert figure.get_supxlabel() == note
    assert not history({"log_density": np.full(3, np.nan)}, {}).axes
    with pytest.raises(nvgd.InputError, match="there is no history to plot"):
        history({}, {})


def test_marginals_show_densities_that_end_where_their_support_does():
    draws = RNG.exponential(size=4000)
    grid = np.linspace(-1, 8, 901)
    heights = kernel_density(draws, grid)
    assert np.all(heights[grid < 0] == 0)
    assert np.isclose(np.sum(heights) * 0.01, 1, atol=0.02)
    assert np.allclose(heights[grid > 0.3], np.exp(-grid[grid > 0.3]), atol=0.06)
    assert axis_limits(draws)[0] == 0
    figure = marginals({"a": draws.reshape(4, 1000), "b": np.ones((4, 1000))})
    assert [axes.get_title() for axes in figure.axes] == ["a", "b"]
    assert "constant: 1" in [text.get_text() for text in figure.axes[1].texts]


def test_pairs_show_hyperparameters_and_what_depends_on_them():
    """A funnel's width depends on its scale, though the two are not correlated."""
    log_scale = 1.5 * RNG.normal(size=1000)
    others = RNG.normal(size=(1000, 8))
    others[:, 5] *= np.exp(log_scale)
    draws = {"effects": others[None], "scale": np.exp(log_scale)[None]}
    values = np.concatenate([others, np.exp(log_scale)[:, None]], axis=1)
    assert important(values, without_axes(draws), 3)[:2] == [8, 5]
    assert dependence(values)[8, 5] > 0.5
    assert dependence(values)[8, 4] < 0.1
    assert strongest_pair(values) == (5, 8)
    assert is_wide(values[:, 8])
    assert not is_wide(values[:, 0])
    figure = pairs(draws, narrow=True)
    assert "3 of 9 scalars" in figure.get_suptitle()
    bottom = [axes for axes in figure.axes if axes.get_xlabel()]
    assert [axes.get_xlabel() for axes in bottom][:2] == ["scale", "effects[5]"]
    assert [axes.get_xscale() for axes in bottom][:2] == ["log", "linear"]


def test_few_scalars_are_all_shown_in_order():
    values = RNG.normal(size=(50, 3))
    assert important(values, np.zeros(3, bool), 6) == [0, 1, 2]
    assert strongest_pair(values[:, :1]) == (0, 0)


def test_predictive_checks_compare_new_data_with_those_observed():
    target = _with_data()
    positions = 0.1 * RNG.normal(size=(300, 1)).astype(np.float32)
    found = predict_observed(target, positions)
    assert list(found) == ["y"]
    assert found["y"].new.shape == (200, 60)
    assert 0.7 < found["y"].share_inside <= 1
    many = predictive(found).axes[0]
    assert many.get_ylabel() == "share of values below"
    few = Predicted(found["y"].observed[:8], found["y"].new[:, :8])
    assert predictive({"y": few}, narrow=True).axes[0].get_xlabel() == "observation"
    assert predict_observed(nvgd.Target(lambda x: -x @ x, dim=1), positions) == {}


def _with_data():
    numpyro = pytest.importorskip("numpyro")
    normal = numpyro.distributions.Normal

    def model(values):
        mean = numpyro.sample("mean", normal(0, 1))
        with numpyro.plate("row", len(values)):
            numpyro.sample("y", normal(mean, 1), obs=values)

    return nvgd.from_numpyro(model, jnp.asarray(RNG.normal(size=60).astype(np.float32)))


def test_a_target_without_data_has_no_predictive_plot():
    run = nvgd.sample(lambda x: -x @ x, nvgd.ULA(0.1), dim=1, num_steps=1, progress=False)
    with pytest.raises(nvgd.InputError, match="needs a model with observed data"):
        run.plot("predictive")


def test_every_method_has_its_colour():
    assert colour_of("ULA") == colour_of("SGLD") == LANGEVIN
    assert colour_of("ParticleFlow") == REFERENCE
    assert tint("#000000", 0.5) == tint("#FFFFFF", -0.5) == "#808080"
    assert tint(LANGEVIN, 0.0) == LANGEVIN
