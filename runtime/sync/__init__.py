"""Ways to bring the KV of running requests to a target, one file per strategy."""
