"""Measurements of the extensions: `python -m benchmarks.extensions`."""
