"""Stages that leave the target invariant."""
