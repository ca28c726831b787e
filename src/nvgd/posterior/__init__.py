"""What came out of a run: particles, summaries, pictures, verdict, weights."""
