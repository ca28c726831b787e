"""Bayesian networks with the interface of scikit-learn."""

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nvgd._support.archives import arrays_to_tree, read_archive, tree_to_arrays, write_archive
from nvgd._support.errors import InputError, check_choice, check_count, check_fraction
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.frontends.networks import from_network
from nvgd.frontends.networks_prediction import Prediction
from nvgd.frontends.sklearn_training import ACTIVATIONS, Settings, network_of, train
from nvgd.targets.target import Target

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data
except ImportError as error:
    from nvgd._support.errors import MissingExtraError

    raise MissingExtraError(
        "nvgd.sklearn needs the package scikit-learn, which cannot be imported here: run "
        "`pip install 'nvgd[sklearn]'`."
    ) from error

KIND = "network_estimator"
# Settings that files hold; a flow or a random generator of the user's cannot be written.
PLAIN = (bool, int, float, str, type(None))
EARLY_STOPPING_ROWS = 1000


class _BayesianNetwork(ABC, BaseEstimator):
    """What regressor and classifier share: settings, fit, files."""

    def __init__(
        self,
        hidden_layer_sizes=(50,),
        *,
        activation="relu",
        prior="normal",
        num_particles=100,
        batch_size="auto",
        max_steps=2000,
        early_stopping="auto",
        validation_fraction=0.1,
        patience=2,
        flow=None,
        progress=False,
        random_state=None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.prior = prior
        self.num_particles = num_particles
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.flow = flow
        self.progress = progress
        self.random_state = random_state

    def _check_settings(self) -> None:
        sizes = np.atleast_1d(np.asarray(self.hidden_layer_sizes, dtype=object))
        for size in sizes:
            check_count("hidden_layer_sizes", size)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_count("num_particles", self.num_particles, minimum=2)
        check_count("max_steps", self.max_steps)
        check_count("patience", self.patience)
        check_fraction("validation_fraction", self.validation_fraction)
        if self.early_stopping not in (True, False, "auto"):
            raise InputError(
                f'early_stopping must be True, False or "auto", got {self.early_stopping!r}.'
            )
        if self.batch_size != "auto" and self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        if self.flow is not None and not isinstance(self.flow, ParticleFlow):
            raise InputError(f"flow must be a flow such as nvgd.NVGD(), got {self.flow!r}.")

    def _target(self, x: np.ndarray, y: np.ndarray, batch_size: int | None) -> Target:
        """The posterior over networks of these settings."""
        sizes = tuple(int(size) for size in np.atleast_1d(np.asarray(self.hidden_layer_sizes)))
        network = network_of(x.shape[1], sizes, self._num_outputs(), self.activation)
        return from_network(
            network,
            data=(x, y),
            likelihood=self._likelihood(),
            prior=self.prior,
            batch_size=batch_size,
        )

    def _fit(self, x: Any, y: np.ndarray) -> None:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        stops = self.early_stopping
        if stops == "auto":
            stops = len(x) >= EARLY_STOPPING_ROWS
        settings = Settings(
            num_particles=self.num_particles,
            batch_size=self.batch_size,
            max_steps=self.max_steps,
            validation_fraction=self.validation_fraction if stops else None,
            patience=self.patience,
            flow=self.flow,
            progress=bool(self.progress),
            seed=seed,
        )
        trained = train(self._target, x, y, settings)
        target = trained.posterior.target
        assert target is not None
        positions = jnp.asarray(trained.posterior.flat_positions)
        self.posterior_ = trained.posterior
        self.validation_scores_ = trained.validation_scores
        self.n_iter_ = trained.num_steps
        self.positions_ = jax.tree.map(np.asarray, jax.vmap(target.structure)(positions))
        # Two rows of the data, from which the model reads shapes and types.
        model: Any = target.model
        few = {name: values[:2] for name, values in model.data.items()}
        self.model_ = eqx.tree_at(lambda model: model.data, model, few)

    @abstractmethod
    def _likelihood(self) -> str:
        """Name of the likelihood."""

    @abstractmethod
    def _num_outputs(self) -> int:
        """Number of outputs of the network."""

    @abstractmethod
    def _template(self) -> tuple[np.ndarray, np.ndarray]:
        """Two rows with which a target of the fitted shape can be built."""

    def predictive(self, X, **options) -> Prediction:
        """The whole predictive distribution, as `posterior.predict(X)` returns it.

        Arguments:
            X: rows.
            options: `y`, `quantiles`, `samples` and `rows_at_once` of `predict`.
        """
        check_is_fitted(self)
        x = validate_data(self, X, reset=False)
        return self.model_.predict(jax.random.key(0), self.positions_, x, **options)

    def __getstate__(self):
        # A posterior holds the functions that continue its run, which cannot be pickled.
        state: Any = dict(cast(Any, super().__getstate__()))
        state.pop("posterior_", None)
        return state

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file, without pickle; `load` reads it."""
        check_is_fitted(self)
        settings = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.get_params(deep=False).items()
        }
        for name, value in settings.items():
            if not isinstance(value, (*PLAIN, list)):
                raise InputError(
                    f"{name} must be a plain value to be written to a file, got {value!r}: call "
                    f"set_params({name}=None) before save, since predictions do not need it."
                )
        facts = {"class": type(self).__name__, "settings": settings, **self._facts()}
        arrays = tree_to_arrays(self.model_, "model") | tree_to_arrays(self.positions_, "positions")
        write_archive(Path(path), KIND, facts, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Any:
        """Read an estimator that `save` wrote."""
        facts, arrays = read_archive(Path(path), KIND)
        if facts["class"] != cls.__name__:
            raise InputError(f"{str(path)!r} holds a {facts['class']}: call its load instead.")
        settings = facts["settings"]
        sizes = settings["hidden_layer_sizes"]
        settings["hidden_layer_sizes"] = tuple(sizes) if isinstance(sizes, list) else sizes
        estimator = cls(**settings)
        estimator._restore_facts(facts)
        target = estimator._target(*estimator._template(), None)
        model: Any = target.model
        num = int(arrays["positions/0"].shape[0])
        like = jax.eval_shape(lambda key: model.draw_start(key, num), jax.random.key(0))
        estimator.model_ = arrays_to_tree(model, arrays, "model")
        estimator.positions_ = jax.tree.map(np.asarray, arrays_to_tree(like, arrays, "positions"))
        return estimator

    def _facts(self) -> dict[str, Any]:
        names = getattr(self, "feature_names_in_", None)
        return {
            "num_features": int(self.n_features_in_),
            "feature_names": None if names is None else [str(name) for name in names],
            "num_steps": int(self.n_iter_),
        }

    def _restore_facts(self, facts: dict[str, Any]) -> None:
        self.n_features_in_ = facts["num_features"]
        self.n_iter_ = facts["num_steps"]
        if facts["feature_names"] is not None:
            self.feature_names_in_ = np.array(facts["feature_names"], dtype=object)


class BayesianNetworkRegressor(RegressorMixin, _BayesianNetwork):
    """Regression by a posterior over networks, with honest intervals.

        regressor = BayesianNetworkRegressor(random_state=0).fit(X, y)
        mean, sd = regressor.predict(X_new, return_std=True)
        low, high = regressor.predict_interval(X_new, 0.9).T

    Inputs and targets are standardised inside. Predictions average over all networks.

    Parameters:
        hidden_layer_sizes: units of each hidden layer.
        activation: "relu", "tanh", "swish" or "gelu".
        noise: "homoscedastic", one standard deviation for all rows, or "heteroscedastic", a
            function of the row. Both are learned.
        prior: as for `nvgd.from_network`.
        num_particles: number of networks.
        batch_size: rows per step; "auto" for an eighth of the rows, at least 16 and at most 128;
            None for all.
        max_steps: gradient steps of every network.
        early_stopping: whether to hold out rows and to stop once their log likelihood has not
            improved in `patience` rounds of a fifth of `max_steps`; the best round is kept. "auto"
            does so from 1,000 rows on.
        validation_fraction: share of the rows to hold out.
        patience: number of rounds.
        flow: another flow than `nvgd.NVGD()`.
        progress: whether to show a progress bar.
        random_state: seed, generator or None, as in scikit-learn.

    Attributes:
        posterior_: the `Posterior` of the fit, not stored in files or pickles.
        validation_scores_: mean log likelihood of the held-out rows after every round.
        n_iter_: number of steps taken.

    Examples:
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import PolynomialFeatures
        >>> from nvgd.sklearn import BayesianNetworkRegressor
        >>> model = make_pipeline(PolynomialFeatures(), BayesianNetworkRegressor((20,)))
        >>> model.get_params()["bayesiannetworkregressor__num_particles"]
        100
    """

    def __init__(
        self,
        hidden_layer_sizes=(50,),
        *,
        activation="relu",
        noise="homoscedastic",
        prior="normal",
        num_particles=100,
        batch_size="auto",
        max_steps=2000,
        early_stopping="auto",
        validation_fraction=0.1,
        patience=2,
        flow=None,
        progress=False,
        random_state=None,
    ):
        super().__init__(
            hidden_layer_sizes,
            activation=activation,
            prior=prior,
            num_particles=num_particles,
            batch_size=batch_size,
            max_steps=max_steps,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            patience=patience,
            flow=flow,
            progress=progress,
            random_state=random_state,
        )
        self.noise = noise

    def fit(self, X, y) -> "BayesianNetworkRegressor":
        """Sample networks given rows X (n, features) and targets y (n,)."""
        self._check_settings()
        check_choice("noise", self.noise, ("homoscedastic", "heteroscedastic"))
        x, targets = validate_data(self, X, y, y_numeric=True, ensure_min_samples=2)
        self._fit(x, np.asarray(targets, np.float64))
        return self

    def predict(self, X, return_std: bool = False):
        """The predictive mean; with `return_std`, also the standard deviation of new targets."""
        prediction = self.predictive(X, quantiles=(), samples=False)
        return (prediction.mean, prediction.sd) if return_std else prediction.mean

    def predict_interval(self, X, level: float = 0.9) -> np.ndarray:
        """Central intervals that hold a new target with probability `level`, shape (rows, 2)."""
        check_fraction("level", level)
        tail = (1 - level) / 2
        found = self.predictive(X, quantiles=(tail, 1 - tail), samples=False).quantiles
        return np.stack(list(found.values()), axis=1)

    def _likelihood(self):
        return "gaussian" if self.noise == "homoscedastic" else "heteroscedastic"

    def _num_outputs(self):
        return 1 if self.noise == "homoscedastic" else 2

    def _template(self):
        return np.eye(2, self.n_features_in_), np.array([0.0, 1.0])


class BayesianNetworkClassifier(ClassifierMixin, _BayesianNetwork):
    """Classification by a posterior over networks.

        classifier = BayesianNetworkClassifier(random_state=0).fit(X, y)
        classifier.predict_proba(X_new)

    Labels may be numbers or strings. Parameters and attributes are those of
    `BayesianNetworkRegressor` without `noise`; `classes_` are the labels.

    Examples:
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import PolynomialFeatures
        >>> from nvgd.sklearn import BayesianNetworkClassifier
        >>> model = make_pipeline(PolynomialFeatures(), BayesianNetworkClassifier((20,)))
        >>> model.get_params()["bayesiannetworkclassifier__num_particles"]
        100
    """

    def fit(self, X, y) -> "BayesianNetworkClassifier":
        """Sample networks given rows X (n, features) and labels y (n,)."""
        self._check_settings()
        x, labels = validate_data(self, X, y, ensure_min_samples=2)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(
                f"y must hold at least two classes, got one class, {self.classes_[0]!r}."
            )
        self._fit(x, numbers)
        return self

    def predict_proba(self, X) -> np.ndarray:
        """Probabilities of the classes, averaged over networks, shape (rows, classes)."""
        return self.predictive(X, quantiles=(), samples=False).mean

    def predict(self, X) -> np.ndarray:
        """The most probable class of each row."""
        check_is_fitted(self)
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def predict_interval(self, X, level: float = 0.9) -> np.ndarray:
        """Central intervals of the networks' class probabilities, shape (rows, classes, 2)."""
        check_fraction("level", level)
        tail = (1 - level) / 2
        found = self.predictive(X, quantiles=(tail, 1 - tail), samples=False).quantiles
        return np.stack(list(found.values()), axis=-1)

    def _likelihood(self):
        return "categorical"

    def _num_outputs(self):
        return len(self.classes_)

    def _template(self):
        rows = np.eye(len(self.classes_), self.n_features_in_)
        return rows, np.arange(len(self.classes_))

    def _facts(self):
        return {**super()._facts(), "classes": self.classes_.tolist()}

    def _restore_facts(self, facts):
        super()._restore_facts(facts)
        self.classes_ = np.array(facts["classes"])
