"""Measurements of the library against others; not part of the package."""
