"""In which coordinates a direction sees the particles."""
