"""The wall clock as this process knows it: one that is put back does not open what has ended."""

import time

_BEGAN_S = time.time()
_BEGAN_MONOTONIC_S = time.monotonic()


def wall_s() -> float:
    """Unix seconds, never less than those that have passed since the process began."""
    return max(time.time(), _BEGAN_S + time.monotonic() - _BEGAN_MONOTONIC_S)
