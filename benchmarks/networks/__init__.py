"""Bayesian networks beside deep ensembles."""
