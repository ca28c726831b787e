"""The HTML report that `nvgd sample` writes."""
