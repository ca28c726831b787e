"""A page with films of NVGD, SVGD and Langevin dynamics on two-dimensional targets."""
