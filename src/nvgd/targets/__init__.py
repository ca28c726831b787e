"""Targets: log densities, their data, and the models that they belong to."""
