"""Bayesian networks beside deep ensembles, SGLD, SVGD and MC dropout."""
