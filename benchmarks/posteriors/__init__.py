"""Posteriors with trusted references, on which samplers are judged without tuning."""
