"""Test densities with exact draws, and distances between samples."""
