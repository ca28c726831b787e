"""Shared utilities without statistics: errors, files, devices, random bits, tables."""
