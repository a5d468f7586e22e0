"""All that has to be seen on a GPU, in one go of a few minutes: ``python -m benchmarks.gpu --json FILE``."""
