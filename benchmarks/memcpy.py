"""How fast this machine copies memory: what a copy of KV is held against."""

import statistics
import time

import numpy as np

BYTES = 1 << 28
REPEAT = 9


def memcpy_bytes_s() -> float:
    """Bytes per second that one thread copies between warm buffers too large for the caches; the median of a few runs."""
    source, target = np.ones(BYTES, np.uint8), np.zeros(BYTES, np.uint8)
    seconds = []
    for _ in range(REPEAT):
        began_s = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - began_s)
    return BYTES / statistics.median(seconds)
