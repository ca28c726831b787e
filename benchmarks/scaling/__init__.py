"""Devices, many particles, data larger than memory, kills: `python -m benchmarks.scaling`."""
