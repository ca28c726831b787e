"""Time to the first posterior: fresh processes, compilation included, with quality beside it."""
