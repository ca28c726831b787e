"""The paper's experiments, one per file, and the demo."""
