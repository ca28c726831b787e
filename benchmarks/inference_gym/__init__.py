"""Posteriors of Google's Inference Gym: `sh benchmarks/inference_gym/run.sh`."""
