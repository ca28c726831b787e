"""Bayesian networks as scikit-learn estimators; needs the extra `nvgd[sklearn]`."""

from nvgd.frontends.sklearn.estimators import BayesianNetworkClassifier, BayesianNetworkRegressor

__all__ = ["BayesianNetworkClassifier", "BayesianNetworkRegressor"]
