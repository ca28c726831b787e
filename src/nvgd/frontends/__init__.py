"""Models and loops of other packages; each package is imported when it is needed."""
