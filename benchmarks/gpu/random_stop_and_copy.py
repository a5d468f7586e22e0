"""The same that switches by stop-and-copy; run as ``python -m benchmarks.gpu.random_stop_and_copy FD``."""

from benchmarks.gpu.random_weights import RandomDriver
from benchmarks.stop_and_copy import StopAndCopy
from runtime.torch_engine.driver.loop import main


class RandomStopAndCopyDriver(RandomDriver):
    """A driver of random weights that switches so."""

    switch_class = StopAndCopy


if __name__ == "__main__":
    main(RandomStopAndCopyDriver)
