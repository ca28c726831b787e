"""The regressor and the classifier."""

import numpy as np

from nvgd._support.errors import InputError, check_choice, check_fraction
from nvgd.frontends.sklearn.base import BayesianNetworkEstimator
from nvgd.frontends.sklearn.packages import (
    ClassifierMixin,
    RegressorMixin,
    check_classification_targets,
    check_is_fitted,
    validate_data,
)


class BayesianNetworkRegressor(RegressorMixin, BayesianNetworkEstimator):
    """Regression by a posterior over neural networks, with predictive intervals.

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


class BayesianNetworkClassifier(ClassifierMixin, BayesianNetworkEstimator):
    """Classification by a posterior over neural networks.

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
                f"y must hold at least two classes, got one class, {self.classes_[0]}."
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
