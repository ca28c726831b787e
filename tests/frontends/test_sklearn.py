"""The scikit-learn estimators: conformance, uncertainty, early stopping, files."""

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import nvgd
from nvgd.sklearn import BayesianNetworkClassifier, BayesianNetworkRegressor

SMALL: dict[str, Any] = {
    "hidden_layer_sizes": (4,),
    "num_particles": 8,
    "max_steps": 60,
    "random_state": 0,
}
RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (120, 1))
Y = 5.0 + 2.0 * np.sin(2.0 * X[:, 0]) + 0.2 * RNG.normal(size=120)
COLOURS = np.where(X[:, 0] > 0.3, "red", "blue")


@pytest.mark.parametrize("kind", [BayesianNetworkRegressor, BayesianNetworkClassifier])
@pytest.mark.filterwarnings("ignore")  # of scikit-learn about checks that it skips
def test_scikit_learn_accepts_them(kind):
    check_estimator(kind(**SMALL))


@pytest.fixture(scope="module")
def regressor():
    settings: dict[str, Any] = {"num_particles": 30, "max_steps": 400, "random_state": 0}
    return BayesianNetworkRegressor((10,), **settings).fit(X, Y)


def test_uncertainty_grows_away_from_the_data(regressor):
    mean, sd = regressor.predict(np.array([[0.0], [6.0]]), return_std=True)
    assert mean[0] == pytest.approx(5.0, abs=0.2)
    assert sd[0] < 0.4
    assert sd[1] > 1.8 * sd[0]
    near = regressor.predict_interval(X, 0.9)
    assert 0.8 < np.mean((near[:, 0] < Y) & (near[:, 1] > Y)) < 0.99
    assert regressor.score(X, Y) > 0.95
    epistemic = regressor.predictive([[0.0], [6.0]]).epistemic
    assert epistemic[1] > 10 * epistemic[0]


def test_files_and_pickles_predict_the_same(regressor, tmp_path):
    path = tmp_path / "regressor.npz"
    regressor.save(path)
    np.load(path, allow_pickle=False)
    for again in (
        BayesianNetworkRegressor.load(path),
        pickle.loads(pickle.dumps(regressor)),
    ):
        assert again.get_params() == regressor.get_params()
        assert np.array_equal(again.predict(X), regressor.predict(X))
    with pytest.raises(nvgd.InputError, match="BayesianNetworkRegressor: call its load"):
        BayesianNetworkClassifier.load(path)


def test_a_classifier_keeps_its_labels_in_a_file(tmp_path):
    classifier = BayesianNetworkClassifier(**{**SMALL, "max_steps": 300}).fit(X, COLOURS)
    probabilities = classifier.predict_proba(X)
    assert probabilities.shape == (120, 2)
    assert probabilities.sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    assert classifier.score(X, COLOURS) > 0.9
    path = tmp_path / "classifier.npz"
    classifier.save(path)
    again = BayesianNetworkClassifier.load(path)
    assert list(again.predict(X)) == list(classifier.predict(X))
    intervals = again.predict_interval(X[:3], 0.5)
    assert intervals.shape == (3, 2, 2)
    assert (intervals[..., 0] <= intervals[..., 1]).all()


def test_three_classes_are_read_from_a_file(tmp_path):
    labels = np.digitize(X[:, 0], [-0.5, 0.5])
    classifier = BayesianNetworkClassifier(**{**SMALL, "max_steps": 2}).fit(X, labels)
    classifier.save(tmp_path / "classifier.npz")
    again = BayesianNetworkClassifier.load(tmp_path / "classifier.npz")
    assert np.array_equal(again.predict_proba(X), classifier.predict_proba(X))


def test_they_work_in_pipelines_and_grid_search():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), BayesianNetworkRegressor(**SMALL)),
        {"bayesiannetworkregressor__prior": ["normal", "laplace"]},
        cv=2,
    )
    search.fit(X, Y)
    assert search.best_params_["bayesiannetworkregressor__prior"] in ("normal", "laplace")
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_early_stopping_keeps_the_best_round():
    settings = {**SMALL, "max_steps": 100, "early_stopping": True, "patience": 1}
    fitted = BayesianNetworkRegressor(**settings, validation_fraction=0.2).fit(X, Y)
    scores = fitted.validation_scores_
    assert fitted.n_iter_ == 20 * len(scores)
    assert len(scores) == 5 or scores[-1] < max(scores)
    order = np.random.default_rng(np.random.RandomState(0).randint(2**31 - 1)).permutation(120)
    held_out = order[:24]
    kept = fitted.predictive(X[held_out], y=Y[held_out], samples=False).log_likelihood
    assert kept is not None
    assert np.mean(kept) == pytest.approx(max(scores), abs=1e-4)


def test_the_noise_can_depend_on_the_row():
    rows = np.linspace(-1, 1, 150)[:, None]
    y = np.where(rows[:, 0] > 0, 1.0, 0.05) * np.random.default_rng(0).normal(size=150)
    fitted = BayesianNetworkRegressor(
        (10,), noise="heteroscedastic", max_steps=300, num_particles=20, random_state=0
    ).fit(rows, y)
    aleatoric = np.sqrt(fitted.predictive([[-0.6], [0.6]]).aleatoric)
    assert aleatoric[1] > 1.5 * aleatoric[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes must be a whole number ≥ 1, got 0"),
        ({"activation": "step"}, "activation must be one of"),
        ({"noise": "none"}, "noise must be one of"),
        ({"prior": "flat"}, "prior must be one of"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"early_stopping": "yes"}, "early_stopping must be True, False or"),
        ({"flow": "nvgd"}, "flow must be a flow"),
    ],
)
def test_wrong_settings_are_answered_in_one_sentence(settings, message):
    with pytest.raises(nvgd.InputError, match=message):
        BayesianNetworkRegressor(**{**SMALL, **settings}).fit(X, Y)


@pytest.mark.parametrize("prior", [nvgd.networks.Laplace(0.5), nvgd.networks.Hierarchical()])
def test_files_hold_priors_with_a_scale(prior, tmp_path):
    fitted = BayesianNetworkRegressor(**{**SMALL, "max_steps": 2}, prior=prior).fit(X, Y)
    fitted.save(tmp_path / "file.npz")
    again = BayesianNetworkRegressor.load(tmp_path / "file.npz")
    assert again.prior == prior
    assert np.array_equal(again.predict(X), fitted.predict(X))


def test_a_flow_cannot_be_written_to_a_file(tmp_path):
    flow = nvgd.SGLD(1e-5)
    fitted = BayesianNetworkRegressor(**{**SMALL, "max_steps": 2}, flow=flow).fit(X, Y)
    with pytest.raises(nvgd.InputError, match="set_params\\(flow=None\\)"):
        fitted.save(tmp_path / "file.npz")
    with pytest.raises(nvgd.InputError, match=r"create .*missing' first"):
        fitted.set_params(flow=None).save(tmp_path / "missing" / "file.npz")


def test_without_scikit_learn_the_extra_is_named():
    code = """
import sys
sys.modules["sklearn"] = None
import nvgd
try:
    nvgd.sklearn
except nvgd.MissingExtraError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "nvgd[sklearn]" in found.stdout
