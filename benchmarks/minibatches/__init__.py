"""Posteriors seen in minibatches: the bare call beside NUTS on all data."""
