"""The ranks of topologies with random weights; see ``benchmarks.gpu.ranks``."""

from benchmarks.gpu.random_weights import RandomCheckpoint
from benchmarks.gpu.ranks import main

if __name__ == "__main__":
    main(RandomCheckpoint)
