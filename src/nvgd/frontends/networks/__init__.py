"""Neural networks as targets: a posterior over the parameters of any network."""
