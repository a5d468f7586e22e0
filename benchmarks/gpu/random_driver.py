"""The engine's driver with random weights; run as ``python -m benchmarks.gpu.random_driver FD`` by ``RandomEngine``."""

from benchmarks.gpu.random_weights import RandomDriver
from runtime.torch_engine.driver.loop import main

if __name__ == "__main__":
    main(RandomDriver)
