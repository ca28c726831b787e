"""Networks as targets: likelihoods, priors, predictions, and messages about wrong input."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nvgd
from nvgd import networks
from nvgd.frontends.networks.scaling import Scaling

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)) * np.array([1.0, 50.0, 0.01]) + np.array([0.0, 1e4, 5.0])
Y = 3.0 + X[:, 0] + 0.02 * X[:, 1] + 0.3 * RNG.normal(size=60)
LABELS = (X[:, 0] > 0).astype(int) + (X[:, 0] > 1)
COUNTS = RNG.poisson(np.exp(0.5 * X[:, 0]))
TARGETS = {
    "gaussian": (Y, 1),
    "heteroscedastic": (Y, 2),
    "poisson": (COUNTS, 1),
    "categorical": (LABELS, 3),
    "bernoulli": ((LABELS > 0).astype(int), 1),
}


def mlp(num_outputs=1, num_inputs=3):
    return eqx.nn.MLP(num_inputs, num_outputs, 5, 1, key=jax.random.key(0))


def target_of(likelihood, **options) -> Any:
    y, num_outputs = TARGETS[likelihood]
    return nvgd.from_network(mlp(num_outputs), data=(X, y), likelihood=likelihood, **options)


def positions_of(target, num=7) -> Any:
    return target.model.draw_prior(jax.random.key(1), num)


def outputs_of(target, positions):
    """Network outputs for all rows, (networks, rows, …), by way of the target's own data."""
    apply = target.model.network.apply
    return jax.vmap(
        lambda parameters: jax.vmap(lambda row: apply(parameters, row))(target.data.rows["x"])
    )(positions["network"])


def test_a_linear_network_has_the_posterior_of_bayesian_regression():
    noise = 0.3
    target: Any = nvgd.from_network(
        eqx.nn.Linear(3, 1, key=jax.random.key(0)),
        data=(X, Y),
        likelihood=networks.Gaussian(noise=noise),
    )
    posterior = nvgd.sample(target, num_steps=600, progress=False)
    new = np.array([[0.0, 1e4, 5.0], [2.0, 1.01e4, 5.03]])
    prediction = posterior.predict(new)

    centre, scale = X.mean(0), X.std(0)
    z, z_new = (np.column_stack([(rows - centre) / scale, np.ones(len(rows))]) for rows in (X, new))
    standard_noise = noise / Y.std()
    precision = np.diag([1.5, 1.5, 1.5, 1.0]) + z.T @ z / standard_noise**2
    mean = np.linalg.solve(precision, z.T @ ((Y - Y.mean()) / Y.std())) / standard_noise**2
    epistemic = np.diag(z_new @ np.linalg.inv(precision) @ z_new.T) * Y.var()
    assert prediction.mean == pytest.approx(Y.mean() + Y.std() * z_new @ mean, abs=0.02)
    assert prediction.epistemic == pytest.approx(epistemic, rel=0.25)
    assert prediction.aleatoric == pytest.approx(noise**2, rel=1e-4)
    wide = prediction.quantiles[0.95] - prediction.quantiles[0.05]
    assert wide == pytest.approx(2 * 1.645 * np.sqrt(epistemic + noise**2), rel=0.05)


def test_likelihoods_are_those_of_scipy():
    def sum_of(likelihood):
        target = target_of(likelihood)
        positions = positions_of(target, 1)
        position = jax.tree.map(lambda leaf: leaf[0], positions)
        terms = jax.vmap(target.log_likelihood, in_axes=(None, 0))(position, target.data.rows)
        return np.asarray(terms), np.asarray(outputs_of(target, positions))[0], position

    standard = (Y - Y.mean()) / Y.std()
    terms, output, position = sum_of("gaussian")
    expected = stats.norm.logpdf(standard, output, np.exp(position["log_noise"]))
    assert terms == pytest.approx(expected, rel=1e-4, abs=1e-4)
    terms, output, _ = sum_of("heteroscedastic")
    sd = np.log1p(np.exp(output[:, 1] + 0.5413)) + 1e-3
    expected = stats.norm.logpdf(standard, output[:, 0], sd)
    assert terms == pytest.approx(expected, rel=1e-4, abs=1e-4)
    terms, output, _ = sum_of("poisson")
    expected = stats.poisson.logpmf(COUNTS, COUNTS.mean() * np.exp(output))
    assert terms == pytest.approx(expected, rel=1e-4, abs=1e-4)
    terms, output, _ = sum_of("categorical")
    probabilities = np.exp(output) / np.exp(output).sum(1, keepdims=True)
    expected = np.log(probabilities[np.arange(60), LABELS])
    assert terms == pytest.approx(expected, rel=1e-4, abs=1e-4)
    terms, output, _ = sum_of("bernoulli")
    expected = stats.bernoulli.logpmf(LABELS > 0, 1 / (1 + np.exp(-output)))
    assert terms == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    ("prior", "distribution"), [("normal", stats.norm), ("laplace", stats.laplace)]
)
def test_weights_have_the_sd_of_their_fan_in(prior, distribution):
    target = target_of("gaussian", prior=prior)
    drawn = target.model.draw_prior(jax.random.key(2), 4000)
    layers = drawn["network"].layers
    sds = {"first": np.sqrt(2 / 3), "second": np.sqrt(2 / 5), "bias": 1.0}
    found = (layers[0].weight, layers[1].weight, layers[0].bias)
    for values, sd in zip(found, sds.values(), strict=True):
        assert np.std(values) == pytest.approx(sd, rel=0.05)
        unit = np.ravel(values) / (sd / distribution.std())
        assert stats.kstest(unit[:4000], distribution.cdf).pvalue > 1e-3
    one, two = (jax.tree.map(lambda leaf, i=i: leaf[i], drawn) for i in (0, 1))

    def log_density(position):
        total = stats.norm.logpdf(position["log_noise"], -1.0, 1.0).sum()
        for i, sd in ((0, sds["first"]), (1, sds["second"])):
            layer = position["network"].layers[i]
            for values, own in ((layer.weight, sd), (layer.bias, 1.0)):
                scale = own / distribution.std()
                total += distribution.logpdf(np.asarray(values, np.float64), scale=scale).sum()
        return total

    difference = float(target.log_prior(one) - target.log_prior(two))
    assert difference == pytest.approx(log_density(one) - log_density(two), rel=1e-3, abs=1e-3)


def test_a_hierarchical_prior_has_a_scale_per_array():
    target = target_of("gaussian", prior="hierarchical")
    drawn = target.model.draw_prior(jax.random.key(2), 4000)
    assert drawn["log_scales"].shape == (4000, 4)
    # Given the scales, weights are normal.
    weights = drawn["network"].layers[0].weight
    unit = weights / np.exp(drawn["log_scales"][:, 0])[:, None, None] / np.sqrt(2 / 3)
    assert np.std(unit) == pytest.approx(1.0, rel=0.05)
    one, two = (jax.tree.map(lambda leaf, i=i: leaf[i], drawn) for i in (0, 1))

    def log_density(position):
        scales = np.exp(np.asarray(position["log_scales"], np.float64))
        # Arrays in the order of the leaves: weight and bias of each layer.
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(position["network"])]
        sds = (np.sqrt(2 / 3), 1.0, np.sqrt(2 / 5), 1.0)
        total = stats.norm.logpdf(np.log(scales), 0, 0.5).sum()
        total += stats.norm.logpdf(position["log_noise"], -1.0, 1.0)
        for scale, leaf, sd in zip(scales, leaves, sds, strict=True):
            total += stats.norm.logpdf(leaf, scale=scale * sd).sum()
        return total

    difference = float(target.log_prior(one) - target.log_prior(two))
    assert difference == pytest.approx(log_density(one) - log_density(two), rel=1e-3, abs=1e-3)
    assert set(target.present(target.flatten(positions_of(target)))) >= {"scales", "noise"}


def test_gains_of_a_layer_norm_are_centred_at_one():
    network = eqx.nn.Sequential([mlp(4), eqx.nn.LayerNorm(4), eqx.nn.Linear(4, 1, key=KEY)])
    target: Any = nvgd.from_network(network, data=(X, Y))
    drawn = target.model.draw_prior(jax.random.key(0), 1000)["network"]
    assert np.mean(drawn.layers[1].weight) == pytest.approx(1.0, abs=0.1)
    assert np.mean(drawn.layers[1].bias) == pytest.approx(0.0, abs=0.1)


KEY = jax.random.key(3)


@pytest.mark.parametrize("likelihood", list(TARGETS))
def test_predictions_do_not_depend_on_the_size_of_chunks(likelihood):
    target = target_of(likelihood)
    positions, y = positions_of(target), TARGETS[likelihood][0]
    whole, parts = (
        target.model.predict(KEY, positions, X, y=y, samples=False, rows_at_once=size)
        for size in (60, 7)
    )
    for name in ("mean", "aleatoric", "epistemic", "log_likelihood"):
        a, b = getattr(whole, name), getattr(parts, name)
        assert a.shape[0] == 60
        assert a == pytest.approx(b, rel=1e-4, abs=1e-5)
    for level in (0.05, 0.5, 0.95):
        assert whole.quantiles[level] == pytest.approx(parts.quantiles[level], rel=1e-4, abs=1e-4)
    assert whole.samples is None


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic", "poisson"])
def test_samples_have_the_moments_and_quantiles_that_are_predicted(likelihood):
    target = target_of(likelihood)
    positions = positions_of(target, 20)
    many = jax.tree.map(lambda leaf: jnp.repeat(leaf, 300, axis=0), positions)
    prediction = target.model.predict(KEY, many, X[:5])
    samples = prediction.samples
    assert samples.shape == (6000, 5)
    assert samples.mean(0) == pytest.approx(prediction.mean, abs=5 * prediction.sd.max() / 70)
    for level, values in prediction.quantiles.items():
        below = (samples <= values + 1e-6).mean(0)
        if likelihood == "poisson":
            assert ((samples <= values - 1).mean(0) < level + 0.02).all()
            assert (below > level - 0.02).all()
        else:
            assert below == pytest.approx(level, abs=0.025)
    if likelihood != "poisson":  # whose variance over networks is dominated by a few
        assert samples.std(0) == pytest.approx(prediction.sd, rel=0.1)


def test_the_uncertainty_of_classes_is_split_into_entropies():
    target = target_of("categorical")
    positions = positions_of(target, 50)
    prediction = target.model.predict(KEY, positions, X, y=LABELS)
    outputs = np.asarray(outputs_of(target, positions), np.float64)
    each = np.exp(outputs) / np.exp(outputs).sum(-1, keepdims=True)
    assert prediction.mean == pytest.approx(each.mean(0), abs=1e-5)
    assert prediction.total == pytest.approx(stats.entropy(each.mean(0), axis=1), abs=1e-4)
    assert prediction.aleatoric == pytest.approx(stats.entropy(each, axis=2).mean(0), abs=1e-4)
    expected = np.log(each.mean(0)[np.arange(60), LABELS])
    assert prediction.log_likelihood == pytest.approx(expected, abs=1e-4)
    assert set(np.unique(prediction.samples)) <= {0, 1, 2}
    assert (prediction.quantiles[0.05] <= prediction.quantiles[0.95]).all()


def test_the_log_predictive_density_is_in_the_units_of_the_targets():
    target = target_of("gaussian")
    positions = positions_of(target)
    prediction = target.model.predict(KEY, positions, X, y=Y)
    outputs = np.asarray(outputs_of(target, positions), np.float64)
    means = Y.mean() + Y.std() * outputs
    sds = Y.std() * np.exp(np.asarray(positions["log_noise"], np.float64))[:, None]
    expected = np.log(stats.norm.pdf(Y, means, sds).mean(0))
    assert prediction.log_likelihood == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert prediction.mean == pytest.approx(means.mean(0), rel=1e-4, abs=1e-3)


def test_a_function_with_parameters_is_a_network():
    module = mlp()
    layers = module.layers
    parameters = {
        "w": [layer.weight.T for layer in layers],
        "b": [layer.bias for layer in layers],
    }

    def apply(parameters, row):
        hidden = jax.nn.relu(row @ parameters["w"][0] + parameters["b"][0])
        return (hidden @ parameters["w"][1] + parameters["b"][1])[0]

    one = nvgd.from_network(module, data=(X, Y))
    two = nvgd.from_network(apply, parameters=parameters, data=(X, Y))
    noise = jnp.asarray(-1.0)
    first = {"network": eqx.filter(module, eqx.is_inexact_array), "log_noise": noise}
    second = {"network": parameters, "log_noise": noise}
    flat = [
        t.flatten(jax.tree.map(lambda leaf: leaf[None], at))[0]
        for t, at in ((one, first), (two, second))
    ]
    assert one.log_density(flat[0]) == pytest.approx(float(two.log_density(flat[1])), rel=1e-5)


def test_a_flax_module_is_a_network():
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self, rngs, *, dropout=False):
            self.first, self.last = nnx.Linear(3, 5, rngs=rngs), nnx.Linear(5, 1, rngs=rngs)
            self.dropout = nnx.Dropout(0.1, rngs=rngs) if dropout else None

        def __call__(self, row):
            return self.last(nnx.relu(self.first(row)))

    target: Any = nvgd.from_network(Net(nnx.Rngs(0)), data=(X, Y))
    assert target.dim == 3 * 5 + 5 + 5 + 1 + 1
    drawn = target.model.draw_prior(jax.random.key(0), 4000)["network"]
    assert np.std(drawn["first"]["kernel"][...]) == pytest.approx(np.sqrt(2 / 3), rel=0.05)
    prediction = target.model.predict(KEY, positions_of(target), X)
    assert np.isfinite(prediction.mean).all()
    with pytest.raises(nvgd.InputError, match="state besides its parameters"):
        nvgd.from_network(Net(nnx.Rngs(0), dropout=True), data=(X, Y))


def test_images_and_several_targets_fit():
    images = RNG.normal(size=(20, 1, 6, 6))
    network = eqx.nn.Sequential(
        [eqx.nn.Conv2d(1, 2, 3, key=KEY), eqx.nn.Lambda(jnp.ravel), eqx.nn.Linear(32, 2, key=KEY)]
    )
    both = RNG.normal(size=(20, 2))
    target: Any = nvgd.from_network(network, data=(images, both), batch_size=10)
    prediction = target.model.predict(KEY, positions_of(target), images, y=both)
    assert prediction.mean.shape == prediction.epistemic.shape == (20, 2)
    assert prediction.log_likelihood.shape == (20,)
    assert target.present(target.flatten(positions_of(target)))["noise"].shape == (7, 2)


def test_a_run_starts_at_the_prior_and_predicts_its_data():
    target = target_of("bernoulli", batch_size=20)
    posterior = nvgd.sample(target, nvgd.SGLD(1e-5), num_particles=6, num_steps=2, progress=False)
    assert posterior.predict()["y"].shape == (1, 6, 60)
    assert posterior.predict(X[:3]).mean.shape == (3,)
    start = np.asarray(target.model.draw_start(jax.random.key(0), 500)["network"].layers[1].weight)
    assert start.std() == pytest.approx(np.sqrt(2 / 5), rel=0.1)


def test_networks_do_not_take_noise_for_signal():
    """One of eight inputs explains half of the variance; a network of 30 units could fit the rest.

    Without noise within the modes, the learned noise is .43 times the true one, and intervals of
    90 % cover .63 of the new rows; with it .52 and .69. NUTS: .96 and .90.
    """
    generator = np.random.default_rng(3)
    x = generator.normal(size=(1200, 8))
    y = x[:, 0] + generator.normal(size=1200)
    network = eqx.nn.MLP(8, 1, 30, 1, key=jax.random.key(0))
    target = nvgd.from_network(network, data=(x[:200], y[:200]), batch_size=25)
    posterior = nvgd.sample(target, num_particles=50, num_steps=1000, progress=False)
    found: Any = posterior.predict(x[200:], samples=False)
    is_inside = (found.quantiles[0.05] <= y[200:]) & (y[200:] <= found.quantiles[0.95])
    assert 0.655 < np.mean(is_inside) < 0.95
    assert 0.47 < np.sqrt(np.mean(found.aleatoric)) < 1.1


def test_few_networks_on_all_rows_do_not_drive_each_other_apart():
    """A witness trained on fewer networks than weights would push them to infinity."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    counts = rng.poisson(np.exp(np.sin(x[:, 0]) + x[:, 1]))
    network = eqx.nn.MLP(3, 1, 20, 1, jax.nn.gelu, key=KEY)
    target = nvgd.from_network(network, data=(x, counts), likelihood="poisson")
    posterior = nvgd.sample(target, num_particles=30, num_steps=200, progress=False)
    assert np.abs(posterior.particles).max() < 10
    assert np.mean((posterior.predict(x).mean - counts) ** 2) < 0.2 * np.var(counts)


def test_rare_values_of_a_column_stay_moderate():
    rare = X.copy()
    rare[:, 1] = 0.0
    rare[3, 1] = 1.0
    rare[:, 2] = 7.0
    target: Any = nvgd.from_network(mlp(), data=(rare, Y))
    seen = np.asarray(target.data.rows["x"])
    assert np.abs(seen).max() <= 10.0
    assert (seen[:, 2] == 0.0).all()


def test_columns_that_vary_by_rounding_only_are_zero():
    # The mean of so many equal numbers differs from them by rounding.
    column = np.full(11_934, 0.998)
    scaling = Scaling.of_columns(np.stack([column, np.arange(11_934.0)], axis=1))
    seen = scaling.standardise(np.stack([column, column], axis=1))[:, 0]
    assert np.abs(seen).max() < 1e-9


def test_large_offsets_do_not_matter():
    values = 1e9 + np.array([[-1.0], [0.0], [1.0]])
    scaling = Scaling.of_columns(values)
    expected = values - 1e9
    np.testing.assert_allclose(scaling.standardise(values), expected / expected.std(), rtol=1e-5)


class WithIntegers(eqx.Module):
    layer: eqx.nn.Linear
    order: jax.Array

    def __call__(self, row):
        return self.layer(row[self.order])


WITH_NAN = X.copy()
WITH_NAN[4, 1] = np.nan


@pytest.mark.parametrize(
    ("network", "options", "message"),
    [
        (
            mlp(3),
            {"data": (X, LABELS + 1), "likelihood": "categorical"},
            "give the network 4 outputs",
        ),
        (mlp(3), {"data": (X, LABELS - 1), "likelihood": "categorical"}, "labels 0 … K−1 only"),
        (mlp(3), {"data": (X, LABELS + 1), "likelihood": "categorical"}, "labels 0 … 2"),
        (mlp(3), {"data": (X, Y), "likelihood": "categorical"}, "labels 0 … K−1 only"),
        (mlp(3), {"data": (X, LABELS.astype(str)), "likelihood": "categorical"}, "number the"),
        (mlp(2), {"data": (X, 0 * LABELS), "likelihood": "categorical"}, "at least two classes"),
        (mlp(), {"data": (X, LABELS), "likelihood": "bernoulli"}, "0 and 1 only"),
        (mlp(), {"data": (X, Y), "likelihood": "poisson"}, "counts"),
        (mlp(), {"data": (WITH_NAN, Y)}, "1 of its 60 rows hold NaN or infinity, first row 4"),
        (mlp(), {"data": (X, np.where(Y > 3, np.nan, Y))}, "y must hold finite numbers"),
        (mlp(), {"data": (X, np.full(60, 2.0))}, r"constant \(2\)"),
        (mlp(), {"data": (X, Y), "batch_size": 61}, "at most the number of data rows, 60"),
        (mlp(), {"data": (X[:5], Y)}, "as many targets as rows"),
        (mlp(), {"data": X}, "pair"),
        (mlp(), {"data": {"x": X, "y": Y}}, "pair"),
        (mlp(), {"data": (X[:0], Y[:0])}, "at least one row"),
        (mlp(), {"data": (X[:, 0], Y)}, r"write x\[:, None\]"),
        (mlp(2), {"data": (X, Y)}, "must return an output of size 1 per row"),
        (mlp(), {"data": (X[:, :2], Y)}, "could not be evaluated at one row"),
        (lambda row: row, {"data": (X, Y)}, "without parameters="),
        (WithIntegers(eqx.nn.Linear(3, 1, key=KEY), jnp.arange(3)), {"data": (X, Y)}, "int32"),
        (
            eqx.nn.Sequential([mlp(4), eqx.nn.Dropout(0.5), eqx.nn.Linear(4, 1, key=KEY)]),
            {"data": (X, Y)},
            "inference_mode",
        ),
        (
            eqx.nn.make_with_state(
                lambda: eqx.nn.Sequential(
                    [eqx.nn.BatchNorm(3, "batch", mode="ema"), eqx.nn.Linear(3, 1, key=KEY)]
                )
            )()[0],
            {"data": (X, Y)},
            "LayerNorm",
        ),
        (
            eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, "batch", mode="ema"),
            {"data": (X, Y)},
            "LayerNorm",
        ),
        (mlp(), {"data": (X, Y), "likelihood": "normal"}, "likelihood must be one of"),
        (mlp(), {"data": (X, Y), "prior": "flat"}, "prior must be one of"),
    ],
)
def test_wrong_input_is_answered_in_one_sentence(network, options, message):
    with pytest.raises(nvgd.InputError, match=message) as caught:
        nvgd.from_network(network, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("noise", "message"), [(0.0, r"> 0, got 0\.0\."), ([0.1, 0.2], r"got shape \(2,\)")]
)
def test_a_wrong_noise_is_answered_in_one_sentence(noise, message):
    with pytest.raises(nvgd.InputError, match=f"noise must be .*{message}"):
        nvgd.from_network(mlp(), data=(X, Y), likelihood=networks.Gaussian(noise=noise))


def test_wrong_rows_to_predict_are_answered_in_one_sentence():
    target = target_of("gaussian")
    positions = positions_of(target)
    with pytest.raises(nvgd.InputError, match=r"rows of shape \(3,\)"):
        target.model.predict(KEY, positions, X[:, :2])
    with pytest.raises(nvgd.InputError, match="one target per row"):
        target.model.predict(KEY, positions, X, y=Y[:3])
    with pytest.raises(nvgd.InputError, match="quantiles"):
        target.model.predict(KEY, positions, X, quantiles=(1.5,))


def test_dropout_in_inference_mode_passes():
    network = eqx.nn.Sequential([mlp(4), eqx.nn.Dropout(0.5), eqx.nn.Linear(4, 1, key=KEY)])
    target: Any = nvgd.from_network(eqx.nn.inference_mode(network), data=(X, Y))
    assert target.dim == 5 * 4 + 4 + 3 * 5 + 5 + 4 + 1 + 1
