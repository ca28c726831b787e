"""The library and other samplers: time per step, memory, time to a given accuracy."""
