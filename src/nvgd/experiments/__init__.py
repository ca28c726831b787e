"""The paper's experiments and the demo, one a file."""
