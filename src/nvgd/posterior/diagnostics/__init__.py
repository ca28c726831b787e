"""Did it work? Measures of particles by their scores, and a verdict in words."""
