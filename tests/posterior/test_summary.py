"""The summary of a posterior: intervals, chosen rows, labels, data frames, HTML."""

import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd.posterior.summary import (
    MAX_ROWS,
    Summary,
    highest_density_interval,
    scalar_names,
    scalars,
)
from nvgd.targets.models import Labels


@pytest.fixture(scope="module")
def posterior():
    target = nvgd.Target(
        lambda at: -0.5 * at["mean"] ** 2 - 0.5 * jnp.sum(at["effect"] ** 2),
        example={"mean": 0.0, "effect": jnp.zeros(2)},
        model=nvgd.Model(dims={"effect": ["<b>"]}, coords={"<b>": ["north", "<i>"]}),
    )
    return nvgd.sample(target, nvgd.ULA(0.1), num_particles=50, num_steps=50, progress=False)


def test_the_highest_density_interval_is_the_narrowest():
    """Of an exponential distribution it starts at zero; of a normal one it is symmetric."""
    levels = (np.arange(4000) + 0.5) / 4000
    exponential, uniform = -np.log1p(-levels), levels
    low, high = highest_density_interval(np.stack([exponential, uniform], axis=1), 0.9)
    assert low[0] < 0.001
    assert np.isclose(high[0], np.log(10), atol=0.01)
    assert np.isclose(high[1] - low[1], 0.9, atol=0.001)


def test_chosen_variables_and_interval(posterior):
    summary = posterior.summary((), var_names=["effect"], hdi=0.8)
    assert summary.names == ("effect[north]", "effect[<i>]")
    assert list(summary.columns) == ["mean", "sd", "mc_error", "hdi80%_low", "hdi80%_high"]
    draws = np.asarray(posterior.draws["effect"])[0, :, 0]
    low, high = (summary[f"hdi80%_{end}"]["effect[north]"] for end in ("low", "high"))
    assert np.isclose(np.mean((draws >= low - 1e-6) & (draws <= high + 1e-6)), 0.8)
    for options, message in (
        ({"hdi": 90.0}, "hdi must lie strictly between 0 and 1, got 90.0"),
        ({"var_names": ["scale"]}, "var_names must be among .*got scale"),
        ({"var_names": "mean"}, r"var_names must be a list of names, got 'mean': write \['mean'\]"),
    ):
        with pytest.raises(nvgd.InputError, match=message):
            posterior.summary(**options)


def test_a_data_frame_and_html(posterior):
    summary = posterior.summary()
    frame = summary.to_pandas()
    assert list(frame.index) == list(summary.names)
    assert frame["mean"].to_dict() == summary["mean"]
    page = summary._repr_html_()
    assert "effect[north]" in page
    assert "<i>" not in page


def test_long_tables_say_how_to_see_the_rest():
    names = tuple(f"x[{i}]" for i in range(MAX_ROWS + 5))
    summary = Summary(names, {"mean": np.arange(len(names), dtype=float)})
    assert len(str(summary).splitlines()) == MAX_ROWS + 2
    assert "5 of 45 rows are not shown: to_text() shows all" in str(summary)
    assert "5 of 45 rows are not shown" in summary._repr_html_()
    assert len(summary.to_text().splitlines()) == len(names) + 1


def test_labels_name_scalars_where_they_fit():
    draws = {"a": np.zeros((2, 3, 2, 2)), "b": np.zeros((2, 3, 2)), "c": np.zeros((2, 3))}
    labels = Labels({"a": ("row", "side"), "b": ("row",)}, {"row": ["p", "q"], "side": [1, 2, 3]})
    assert scalar_names(draws, labels) == [
        "a[p, 0]",
        "a[p, 1]",
        "a[q, 0]",
        "a[q, 1]",
        "b[p]",
        "b[q]",
        "c",
    ]
    draws["b"][:, :, 1] = 7
    names, values = scalars(draws)
    assert values.shape == (2, 3, 7)
    assert np.all(values[:, :, names.index("b[1]")] == 7)


def test_deterministics_are_hidden_on_request_and_remembered(tmp_path):
    numpyro = pytest.importorskip("numpyro")
    normal = numpyro.distributions.Normal

    def model():
        mean = numpyro.sample("mean", normal(0, 1))
        numpyro.deterministic("double", 2 * mean)

    target = nvgd.from_numpyro(model)
    posterior = nvgd.sample(target, nvgd.ULA(0.1), num_particles=20, num_steps=5, progress=False)
    assert set(posterior.summary().names) == {"mean", "double"}
    path = tmp_path / "run.npz"
    posterior.save(path)
    for shown in (posterior, nvgd.load(path)):
        assert shown.summary(deterministics=False).names == ("mean",)
        assert shown.summary(deterministics=False, var_names=["double"]).names == ("double",)
