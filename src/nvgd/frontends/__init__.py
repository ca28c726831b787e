"""Models from other packages; each package is imported only when it is used."""
