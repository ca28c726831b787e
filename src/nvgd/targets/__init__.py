"""What is sampled: a log density, its data, and what else is known of the model."""
