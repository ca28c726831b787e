"""Results of a run: particles, summaries, plots, diagnostics and importance weights."""
