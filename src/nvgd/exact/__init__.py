"""Stages that keep the target exactly."""
