"""Coordinates in which a direction sees the particles."""
