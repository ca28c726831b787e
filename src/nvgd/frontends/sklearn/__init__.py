"""Bayesian networks with the interface of scikit-learn."""
