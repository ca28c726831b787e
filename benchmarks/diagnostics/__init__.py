"""How often `Posterior.diagnose` is right: exact draws, good runs, broken runs."""
