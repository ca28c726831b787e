"""The library beside other people's samplers: time a step, memory, time to a given accuracy."""
