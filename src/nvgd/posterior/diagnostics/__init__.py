"""Convergence diagnostics: measures of particles by their scores, and a verdict in words."""
