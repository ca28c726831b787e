"""Runs: from a target to its posterior."""
